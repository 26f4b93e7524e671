package check

import (
	"cmp"
	"slices"

	"github.com/latchkey-go/latchkey/internal/chaos/history"
)

// operations returns r's grants, ends and refusals for the model, by call.
// The refusals that are left out, since they are legal in any state, are counted:
// those that the history explains, and those that are excused.
//
// A Try without effect is not among them. A grant may have been made for it and
// given back. That can explain a refusal (see excuses) and nothing else.
func (r *record) operations(x *excuses) (ops []operation, explained, excused int) {
	for _, l := range r.locks {
		ops = append(ops, operation{grant, l.Lock, l.asked, l.granted})
		ops = append(ops, l.ends(x.last)...)
	}
	for _, t := range r.tries {
		if t.Result != history.Held {
			continue
		}
		if _, _, held := r.answerable(t.Begin, t.End); !held && x.excuse(t) {
			if x.explain(t) {
				explained++
			} else {
				excused++
			}
			continue
		}
		ops = append(ops, operation{action: refuse, call: t.Begin, ret: t.End})
	}
	byCall(ops)
	return ops, explained, excused
}

// refusals is how many there are.
func (r *record) refusals() (n int) {
	for _, t := range r.tries {
		if t.Result == history.Held {
			n++
		}
	}
	return n
}

func byCall(ops []operation) {
	slices.SortStableFunc(ops, func(a, b operation) int { return cmp.Compare(a.call, b.call) })
}

// ends returns the operations that ended l, of a history that lasted until
// last.
//
// An Unlock that returned nil freed the key. A loss, and any other result of
// Unlock, leave the key in limbo:
//
//   - The server may have ended the session at any moment since the lock was last
//     seen valid, or since the call for it if it never was.
//   - It may also do so after the call.
//
// A lock without an end belongs to a process that was killed. It is treated
// like a lost one.
func (l *lock) ends(last history.Moment) (ops []operation) {
	if l.returned() {
		begin := max(l.UnlockBegin, l.granted)
		ops = append(ops, operation{free, l.Lock, begin, max(begin, l.Ended)})
		if l.Told == 0 {
			return ops
		}
	}
	told := last
	if l.Told != 0 {
		told = l.Told
	}
	return append(ops, operation{lose, l.Lock, l.until(), max(l.until(), told)})
}
