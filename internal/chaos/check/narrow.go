package check

import "github.com/latchkey-go/latchkey/internal/chaos/history"

// narrow shortens the operations of r, in place. It removes moments at which an
// operation cannot take effect if the history is right, and moments that are
// not needed. Then the order is found without a search. A history that is wrong
// stays wrong.
//
// A lock is held from a moment within the call that granted it, until at least
// until(). So, if the history is right:
//
//   - Grants took effect in the order in which their calls returned, and each after
//     the until() of every lock before it. Ghosts are an exception.
//   - The end of a lock took effect before the next grant had returned.
//   - A refusal may be given a moment at which a lock was certainly held, or was
//     lost and not granted again, if its call includes one.
//   - Any other refusal began when the key was free. It is right only if it came
//     after the next grant, so its last moment is the best one.
func (r *record) narrow(ops []operation) {
	begin := make(map[int64]history.Moment, len(r.locks)) // of the grants
	end := make(map[int64]history.Moment, len(r.locks))   // of what ends them
	var reach history.Moment
	for i, l := range r.locks {
		begin[l.Lock] = l.asked
		if !l.ghost() {
			begin[l.Lock] = min(max(l.asked, reach), l.granted)
			reach = max(reach, l.until())
		}
		if i+1 < len(r.locks) {
			end[l.Lock] = r.locks[i+1].granted
		}
	}
	for i := range ops {
		switch o := &ops[i]; o.action {
		case grant:
			o.call = max(o.call, begin[o.lock])
		case free, lose:
			if next, ok := end[o.lock]; ok {
				o.ret = max(o.call, min(o.ret, next))
			}
		case refuse:
			if from, to, ok := r.answerable(o.call, o.ret); ok {
				o.ret = from + o.call%(to-from+1) // spread: to order those of one moment is a search
			}
			o.call = o.ret
		}
	}
	byCall(ops)
}

// answerable returns a time within begin and end at which a refusal is legal,
// if all else is. Then a lock is held, or is in limbo with the next grant still
// to come.
func (r *record) answerable(begin, end history.Moment) (from, to history.Moment, ok bool) {
	i := r.after(end)
	for i > 0 && r.locks[i-1].ghost() {
		i--
	}
	if i == 0 {
		return 0, 0, false
	}
	l := r.locks[i-1] // granted within begin to end, or before
	from = max(begin, l.granted)
	if !l.returned() {
		return from, end, true
	}
	to = min(end, l.until())
	return from, to, from <= to
}
