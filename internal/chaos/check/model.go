package check

import (
	"github.com/anishathalye/porcupine"

	"github.com/latchkey-go/latchkey/internal/chaos/history"
)

// An action is what an operation does to a key.
type action uint8

const (
	grant  action = iota // free, limbo → held by lock
	refuse               // legal while held or in limbo
	free                 // held by lock → free
	lose                 // held by lock → limbo; else nothing
)

// An operation is one step of a key's history for the model. It took effect at
// some moment from call to ret, both included.
type operation struct {
	action
	lock      int64
	call, ret history.Moment
}

// A state is what may be true of a key in the database.
//
// In limbo a lock was lost, or its Unlock got no answer. The server has freed
// the lock, or will at some later moment. So both a grant and a refusal are
// legal until the next grant.
type state struct {
	phase phase
	lock  int64 // that holds the key
}

type phase uint8

const (
	isFree phase = iota
	isHeld
	isLimbo
)

// step is the state after o, and whether o was legal.
func (s state) step(o operation) (bool, state) {
	holds := s == state{isHeld, o.lock}
	switch o.action {
	case grant:
		return s.phase != isHeld, state{isHeld, o.lock}
	case refuse:
		return s.phase != isFree, s
	case free:
		return holds, state{}
	default:
		if holds {
			return true, state{phase: isLimbo}
		}
		return true, s
	}
}

// model is a lock server with one key that is in state first.
func model(first state) porcupine.Model {
	return porcupine.Model{
		Init: func() any { return first },
		Step: func(s, in, _ any) (bool, any) { return s.(state).step(in.(operation)) },
	}
}

func forPorcupine(ops []operation) []porcupine.Operation {
	out := make([]porcupine.Operation, len(ops))
	for i, o := range ops {
		out[i] = porcupine.Operation{Input: o, Call: int64(o.call), Return: int64(o.ret)}
	}
	return out
}
