package check

import (
	"errors"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/anishathalye/porcupine"

	"github.com/latchkey-go/latchkey/internal/chaos/history"
)

// simulated are the facts about a simulation.
var simulated = Facts{Lease: 5 * time.Second, Kills: []int{kill}}

// Every history of a correct service passes, failures included.
func TestCorrectService(t *testing.T) {
	const seeds = 100
	var losses, unjudged, refusals int
	for seed := range uint64(seeds) {
		report := Sweep(simulate(seed, 400), simulated)
		if err := report.Err(); err != nil {
			t.Fatalf("seed %d: %v", seed, err)
		}
		losses, unjudged, refusals = losses+report.Losses, unjudged+report.Unjudged, refusals+report.Refusals
	}
	if losses < seeds || unjudged > refusals/4 {
		t.Errorf("%d losses, and %d of %d refusals not judged, show too little", losses, unjudged, refusals)
	}
}

// The rules for overlaps and refusals are linearizability: porcupine, which
// searches for an order of all calls, says the same of histories that are wrong
// by a little.
func TestLinearizable(t *testing.T) {
	count := map[bool]int{}
	for seed := range uint64(600) {
		events := simulate(seed, 100)
		disturb(rand.New(rand.NewPCG(seed, 99)), events)
		s := newSweep(events, simulated)
		for _, r := range s.keys {
			s.report.Findings = nil
			s.overlaps(r)
			s.refusals(r)
			legal := porcupine.CheckOperations(server, s.operations(r))
			count[legal]++
			if legal != (len(s.report.Findings) == 0) {
				t.Fatalf("seed %d, key %d: legal %t for porcupine; found %+v", seed, r.key, legal, s.report.Findings)
			}
		}
	}
	if count[true] == 0 || count[false] == 0 {
		t.Errorf("none of a kind: %v", count)
	}
	t.Log(count)
}

// disturb moves what the history says a little, so that some of it is wrong and
// much of it is nearly so.
func disturb(rng *rand.Rand, events []history.Event) {
	shift := func() history.Moment { return history.Moment(rng.Int64N(int64(200 * ms))) }
	for range 30 {
		switch e := events[rng.IntN(len(events))]; {
		case e.Try != nil && e.Try.Result == history.Held:
			e.Try.End += shift()
			e.Try.Begin = min(e.Try.End, e.Try.Begin+shift())
		case e.Try != nil:
			e.Try.Begin = max(1, e.Try.Begin-shift())
		case e.Hold != nil && e.Hold.UnlockBegin != 0:
			e.Hold.UnlockBegin += shift()
			e.Hold.Ended = e.Hold.UnlockBegin + shift()
		case e.Hold != nil:
			e.Hold.Valid += shift()
		}
	}
}

// An operation is one step of a key's history for porcupine.
type operation struct {
	do   string
	lock int64
}

// A state is what may be true of a key in the database. In limbo a lock was
// lost: the server has freed it, or will at some later moment.
type state struct {
	lock  int64 // that holds the key; 0: none
	limbo bool
}

// server is a lock server with one key.
var server = porcupine.Model{
	Init: func() any { return state{} },
	Step: func(was, in, _ any) (bool, any) {
		s, o := was.(state), in.(operation)
		switch o.do {
		case "grant":
			return s.lock == 0, state{lock: o.lock}
		case "refuse":
			return s != state{}, s
		case "free":
			return s.lock == o.lock, state{}
		}
		if s.lock == o.lock { // it is lost
			return true, state{limbo: true}
		}
		return true, s
	},
}

// operations returns r's grants, ends and refusals. Refusals are left out that
// are right in any state, and those that are not judged.
func (s *sweep) operations(r *record) (ops []porcupine.Operation) {
	const last = history.Moment(1 << 62)
	add := func(do string, lock int64, from, to history.Moment) {
		ops = append(ops, porcupine.Operation{Input: operation{do, lock}, Call: int64(from), Return: int64(max(from, to))})
	}
	for _, l := range r.locks {
		add("grant", l.Lock, l.asked, l.granted)
		from := l.until()
		if l.ghost() {
			from = l.asked
		}
		switch {
		case l.returned():
			add("free", l.Lock, max(l.UnlockBegin, l.granted), l.Ended)
		case l.Told != 0:
			add("lose", l.Lock, from, l.Told)
		default:
			add("lose", l.Lock, from, last)
		}
	}
	m, abandoned := s.memory(r), s.abandoned(r)
	for _, t := range r.tries {
		if t.Result != history.Held || m.unlocking.touch(t.Begin, t.End) || m.own.of(t.Process).touch(t.Begin, t.End) ||
			abandoned.explain(r, r.after(t.Begin-1), t) {
			continue
		}
		add("refuse", 0, t.Begin, t.End)
	}
	return ops
}

func TestUnsafe(t *testing.T) {
	if err := Unsafe(errors.Join(ErrSlow, errors.Join(ErrLong, errors.New("no rule")))); err != nil {
		t.Errorf("a slow machine may do that: %v", err)
	}
	if err := Unsafe(errors.Join(ErrSlow, (&Report{Findings: []Finding{{Rule: ErrOverlap}}}).Err())); !errors.Is(err, ErrOverlap) || errors.Is(err, ErrSlow) {
		t.Errorf("got %v, want ErrOverlap alone", err)
	}
}
