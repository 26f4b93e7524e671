package check

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/anishathalye/porcupine"

	"github.com/latchkey-go/latchkey/internal/chaos/history"
)

const seeds = 100

// Every history of a correct service passes, failures included.
func TestCorrectService(t *testing.T) {
	var losses, kills, excused, refusals int
	for seed := range uint64(seeds) {
		events := simulate(seed, 400)
		report := Sweep(events)
		v, err := Linearize(events, terms(time.Minute))
		if err := errors.Join(report.Err(), err); err != nil {
			t.Fatalf("seed %d: %v\n%s", seed, err, report)
		}
		losses, kills = losses+report.Losses, kills+report.Faults[kill]
		excused, refusals = excused+v.Excused, refusals+report.Tries[history.Held]
	}
	if losses < seeds || kills < seeds {
		t.Errorf("%d losses and %d kills in %d histories are too few to show anything", losses, kills, seeds)
	}
	if excused > refusals/4 {
		t.Errorf("%d of %d refusals were not judged", excused, refusals)
	}
	t.Logf("%d losses, %d kills, %d of %d refusals not judged", losses, kills, excused, refusals)
}

// Narrowing and cutting change no result: porcupine says the same of the whole
// history as it was written.
func TestNarrowExact(t *testing.T) {
	count := map[string]int{}
	for seed := range uint64(600) {
		rng := rand.New(rand.NewPCG(seed, 99))
		events := simulate(seed, 100)
		disturb(rng, events)
		rs, err := index(events)
		if err != nil {
			t.Fatal(err)
		}
		faults := disturbances(rs.faults)
		for _, r := range rs.keys {
			ops, _, _ := r.operations(r.excuses(rs, terms(0), faults))
			want := piece{ops: ops}.check(time.Time{})
			count[fmt.Sprint(want)]++
			narrowed := append([]operation(nil), ops...)
			r.narrow(narrowed)
			for _, least := range []int{1, 8, 1000} {
				if got := checkAll(r.pieces(narrowed, least)); got != want {
					t.Fatalf("seed %d, key %d, pieces of %d: %v, want %v\n%+v\n%+v", seed, r.key, least, got, want, ops, narrowed)
				}
			}
		}
	}
	if count[fmt.Sprint(porcupine.Ok)] == 0 || count[fmt.Sprint(porcupine.Illegal)] == 0 {
		t.Errorf("none of a kind: %v", count)
	}
	t.Log(count)
}

func checkAll(pieces []piece) porcupine.CheckResult {
	for _, p := range pieces {
		if result := p.check(time.Time{}); result != porcupine.Ok {
			return result
		}
	}
	return porcupine.Ok
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
