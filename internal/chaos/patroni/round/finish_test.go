//go:build linux

package round

import (
	"context"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/latchkey-go/latchkey/internal/bound"
	"github.com/latchkey-go/latchkey/internal/chaos/check"
	"github.com/latchkey-go/latchkey/internal/chaos/history"
	"github.com/latchkey-go/latchkey/internal/chaos/patroni/cluster"
)

func TestMain(m *testing.M) {
	bound.Lengthen()
	os.Exit(m.Run())
}

// lockLines are the lines of a lock in a history.
func lockLines(process int, lock int64, from, valid int) []history.Event {
	return []history.Event{
		{Try: &history.Try{Process: process, Key: 1, Call: lock, Lock: lock, Begin: ms(from), End: ms(from), Result: history.OK}},
		{Hold: &history.Hold{Process: process, Key: 1, Lock: lock, From: ms(from), Valid: ms(valid), UnlockBegin: ms(valid), Ended: ms(valid), Unlock: history.OK}},
	}
}

// What the databases store and what processes saw is checked, also when the round
// had no regular end.
func TestCheck(t *testing.T) {
	refused := history.Event{Write: &history.Write{Process: 1, Key: 1, Lock: 11, Number: 5, Begin: ms(1650), End: ms(1660), Result: history.Fenced}}
	acknowledged := history.Event{Write: &history.Write{Process: 1, Key: 1, Lock: 11, Number: 6, Begin: ms(7000), End: ms(7010), Result: history.OK}}
	stored := []check.Stored{{Key: 1, N: 1, Timeline: 1, LSN: 1, Lock: 11, Number: 5}}
	e := &evidence{Lease: ms(10000), Servers: []cluster.Sighting{accepts("a", 100, 2000), accepts("b", 1500, 9000)}}
	two := append(lockLines(1, 11, 1000, 1700), lockLines(2, 12, 1600, 1650)...) // on two primaries
	one := append(lockLines(1, 15, 6000, 6400), lockLines(2, 16, 6300, 6500)...) // on one
	for _, tt := range []struct {
		name    string
		events  []history.Event
		rows    []check.Stored
		stuck   string
		want    string // in the violations; empty: none
		excused []time.Duration
	}{
		{"overlap on two primaries", two, []check.Stored{}, "", "", []time.Duration{50 * time.Millisecond}},
		{"overlap on one", append(two, one...), []check.Stored{}, "", check.ErrOverlap.Error(), []time.Duration{50 * time.Millisecond}},
		{"a refused write", append(two, refused), []check.Stored{}, "", "", []time.Duration{50 * time.Millisecond}},
		{"a refused write is stored", append(two, refused), stored, "", check.ErrWriteStored.Error(), []time.Duration{50 * time.Millisecond}},
		{"the same, and the observer was blind", append(two, refused), stored, "blind", check.ErrWriteStored.Error(), []time.Duration{50 * time.Millisecond}},
		{"an acknowledged write is not stored", append(two, acknowledged), []check.Stored{}, "", "no fault may have lost them", []time.Duration{50 * time.Millisecond}},
		{"the same, and nothing was read", append(two, acknowledged), nil, "stuck", "", []time.Duration{50 * time.Millisecond}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			r := &run{dir: t.TempDir(), result: &Result{Stuck: tt.stuck, Outcomes: []Outcome{{Row: keeps, Begin: ms(500), Settled: ms(3000)}, {Row: keeps, Begin: ms(5000), Settled: ms(9000)}}}}
			file, err := os.Create(filepath.Join(r.dir, "process-1.jsonl"))
			if err != nil {
				t.Fatal(err)
			}
			for _, e := range tt.events {
				err = errors.Join(err, json.NewEncoder(file).Encode(e))
			}
			if err := errors.Join(err, file.Close()); err != nil {
				t.Fatal(err)
			}
			e := *e
			e.Faults = r.result.Outcomes
			r.check(tt.rows, &e)
			if violated := strings.Join(r.result.Violations, "\n"); tt.want == "" && violated != "" || !strings.Contains(violated, tt.want) {
				t.Errorf("violations %q, want %q", violated, tt.want)
			}
			if got := r.result.Outcomes[0].Excused; !reflect.DeepEqual(got, tt.excused) || r.result.Operations == 0 {
				t.Errorf("excused %v, want %v; %d operations", got, tt.excused, r.result.Operations)
			}
		})
	}
}

// An error is no violation, unless the end of the time is what it comes from.
func TestExpect(t *testing.T) {
	broken := errors.New("broken")
	for _, tt := range []struct {
		name       string
		looks      []error // nil: it is not so
		violations int
		want       string
	}{
		{"never", []error{nil, nil}, 1, ""},
		{"never, and the last look is cut short", []error{nil, context.DeadlineExceeded}, 1, ""},
		{"never, after an error", []error{broken, nil}, 1, ""},
		{"an error at last", []error{nil, broken}, 0, "broken"},
		{"the only look is cut short", []error{context.DeadlineExceeded}, 0, "no look has ended"},
	} {
		synctest.Test(t, func(t *testing.T) {
			r, looks := &run{result: &Result{}}, tt.looks
			err := r.expect(t.Context(), "something", func(ctx context.Context) (bool, error) {
				look := looks[0]
				if len(looks) > 1 {
					looks = looks[1:]
				}
				if errors.Is(look, context.DeadlineExceeded) {
					<-ctx.Done()
				}
				return false, look
			})
			if len(r.result.Violations) != tt.violations || (err == nil) != (tt.want == "") || err != nil && !strings.Contains(err.Error(), tt.want) {
				t.Errorf("%s: %v, %v", tt.name, err, r.result.Violations)
			}
		})
	}
}
