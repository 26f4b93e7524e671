package check

import (
	"errors"
	"fmt"
	"time"

	"github.com/anishathalye/porcupine"

	"github.com/latchkey-go/latchkey/internal/chaos/history"
)

// What Linearize's error matches.
var (
	ErrIllegal   = errors.New("check: no lock server could have given these answers")
	ErrUndecided = errors.New("check: the time was not enough to decide")
)

// A Place is where in a history a key's answers were wrong, or were not checked.
type Place struct {
	Key        int64
	From, To   history.Moment
	Operations int
}

// A Linearization is what [Linearize] found.
type Linearization struct {
	Keys       int
	Operations int // grants, refusals and ends of locks that were checked
	Refusals   int // checked or not
	Explained  int // of them, those that are right in any state: an Unlock had not returned, or a call of the process waited
	Excused    int // of them, those that were not, since calls without a known effect explain them

	Illegal   []Place // of each key the first
	Undecided []Place
}

// Params are the facts about the system that [Linearize] needs, and its time
// limit.
type Params struct {
	Timeout time.Duration // 0: none
	Lease   time.Duration // after which the server frees what a session had
	Kills   []int         // the rows of faults that kill their process
	Lingers time.Duration // how long what a killed process had is in force, at most; 0: the server frees it at once
}

// Linearize checks each key on its own. It asks whether one lock server, which
// holds the key for one lock at a time, could have given all answers of the
// history. Each answer takes effect at some moment within its call.
//
// Keys that readers share are left out, and so are those of calls that want
// several keys at once. The refusal of such a call says nothing about one key.
// Sweep has rules for them.
//
// What is unknown widens what is legal. A lock that was lost, or whose Unlock
// got no answer, may be free at any later moment; see also excuses. The error
// matches ErrIllegal, ErrUndecided or ErrMalformed.
func Linearize(events []history.Event, t Params) (Linearization, error) {
	rs, err := index(events)
	if err != nil {
		return Linearization{}, err
	}
	var deadline time.Time
	if t.Timeout > 0 {
		deadline = time.Now().Add(t.Timeout)
	}
	v := Linearization{}
	faults := disturbances(rs.faults)
	for _, r := range rs.keys {
		if !r.plain {
			continue
		}
		v.Keys++
		ops, explained, excused := r.operations(r.excuses(rs, t, faults))
		r.narrow(ops)
		v.Explained += explained
		v.Excused += excused
		v.Refusals += r.refusals()
		v.Operations += len(ops)
		v.checkKey(r, ops, deadline)
	}
	return v, v.err()
}

func (v *Linearization) checkKey(r *record, ops []operation, deadline time.Time) {
	for _, p := range r.pieces(ops, pieceLen) {
		switch p.check(deadline) {
		case porcupine.Ok:
			continue
		case porcupine.Illegal:
			v.Illegal = append(v.Illegal, p.place(r.key))
		default:
			v.Undecided = append(v.Undecided, p.place(r.key))
		}
		return
	}
}

func (v *Linearization) err() error {
	var errs []error
	if n := len(v.Illegal); n > 0 {
		errs = append(errs, fmt.Errorf("%w: %d keys, first %+v", ErrIllegal, n, v.Illegal[0]))
	}
	if n := len(v.Undecided); n > 0 {
		errs = append(errs, fmt.Errorf("%w: %d keys, first %+v", ErrUndecided, n, v.Undecided[0]))
	}
	return errors.Join(errs...)
}
