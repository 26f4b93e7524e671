package check

import (
	"time"

	"github.com/anishathalye/porcupine"
)

// A piece is a stretch of a key's narrowed history that can be checked alone:
// no other operation was under way when it began, and the state was first.
type piece struct {
	first state
	ops   []operation
}

const pieceLen = 64 // enough that a piece costs more than to begin one

// pieces cuts ops, which are narrowed and sorted by call. It cuts where a lock
// has just been granted and is certainly held. Nothing is under way then, and
// the state is known if all before was legal.
//
// A piece has at least the given number of operations, except for the last one.
func (r *record) pieces(ops []operation, least int) (all []piece) {
	var first state
	begin, next := 0, 0 // ops[begin:next] are not in a piece yet, and began before the cut
	for _, l := range r.locks {
		if l.until() <= l.granted {
			continue
		}
		for next < len(ops) && ops[next].call <= l.granted {
			next++
		}
		if next-begin >= least {
			all = append(all, piece{first, ops[begin:next]})
			first, begin = state{isHeld, l.Lock}, next
		}
	}
	return append(all, piece{first, ops[begin:]})
}

// check runs porcupine until deadline, or without a limit if that is zero.
func (p piece) check(deadline time.Time) porcupine.CheckResult {
	var left time.Duration
	if !deadline.IsZero() {
		if left = time.Until(deadline); left <= 0 {
			return porcupine.Unknown
		}
	}
	return porcupine.CheckOperationsTimeout(model(p.first), forPorcupine(p.ops), left)
}

func (p piece) place(key int64) Place {
	place := Place{Key: key, Operations: len(p.ops)}
	if len(p.ops) > 0 {
		place.From = p.ops[0].call
	}
	for _, o := range p.ops {
		place.To = max(place.To, o.ret)
	}
	return place
}
