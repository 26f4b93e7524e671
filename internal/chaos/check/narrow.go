package check

import "github.com/latchkey-go/latchkey/internal/chaos/history"

// narrow shortens the operations of r, in place, to moments outside which they
// could not take effect in any legal order, or need not: the verdict is the same
// and is found without search. Where the history is wrong they stay wrong.
//
// It rests on this. A lock is held from its grant, which is before granted, until
// until at least. So in a legal order
//
//   - grants take effect in the order of granted, each after the end of all
//     before it began;
//   - what ends a lock takes effect before the next grant has returned;
//   - a refusal that overlaps a moment at which a lock was certainly held, or
//     was in limbo, may have been answered right then;
//   - any other began when the key was free, since one that overlaps an Unlock is
//     excused. It can be right only behind the next grant, so the later the better.
func (r *record) narrow(ops []operation) {
	begin := make(map[int64]history.Moment, len(r.locks)) // of the grants
	end := make(map[int64]history.Moment, len(r.locks))   // of what ends them
	var reach history.Moment
	for i, l := range r.locks {
		begin[l.Lock] = min(max(l.asked, reach), l.granted)
		reach = max(reach, l.until())
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

// answerable is a time within begin to end when to refuse is legal if all else
// is: a lock is held, or in limbo with the next grant still to come.
func (r *record) answerable(begin, end history.Moment) (from, to history.Moment, ok bool) {
	i := r.after(end)
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
