//go:build linux

package round

import (
	"context"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/latchkey-go/latchkey/internal/bound"
	"github.com/latchkey-go/latchkey/internal/chaos/check"
	"github.com/latchkey-go/latchkey/internal/chaos/history"
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
	lost := history.Event{Hold: &history.Hold{Process: 1, Key: 2, Lock: 13, From: ms(400), Valid: ms(450), Told: ms(520), Ended: ms(530), UnlockBegin: ms(525), Unlock: history.Lost}}
	asked := history.Event{Try: &history.Try{Process: 1, Key: 2, Call: 13, Lock: 13, Begin: ms(390), End: ms(395), Result: history.OK}}
	during := append(lockLines(1, 11, 1000, 1700), append(lockLines(2, 12, 1600, 1650), asked, lost)...)
	after := append(lockLines(1, 15, 4000, 4400), lockLines(2, 16, 4300, 4500)...)
	// The commits of both primaries: the older one's token comes later.
	both := []check.Stored{{Key: 1, N: 1, Timeline: 2, LSN: 1, Lock: 12, Number: 7}, {Key: 1, N: 2, Timeline: 1, LSN: 9, Lock: 11, Number: 8}}
	for _, tt := range []struct {
		name   string
		events []history.Event
		rows   []check.Stored
		stuck  string
		want   string // in the violations; empty: none
	}{
		{"overlap during a fault", during, []check.Stored{}, "", ""},
		{"overlap without one", append(during, after...), []check.Stored{}, "", check.ErrOverlap.Error()},
		{"commits of both primaries", during, both, "", check.ErrTokenFell.Error()},
		{"a refused write", append(during, refused), []check.Stored{}, "", ""},
		{"a refused write is stored", append(during, refused), stored, "", check.ErrWriteStored.Error()},
		{"the same, and the cluster was stuck", append(during, refused), stored, "stuck", check.ErrWriteStored.Error()},
		{"an acknowledged write is not stored", append(during, acknowledged), []check.Stored{}, "", "no fault may have lost them"},
		{"the same, and nothing was read", append(during, acknowledged), nil, "stuck", ""},
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
			r.check(tt.rows)
			if violated := strings.Join(r.result.Violations, "\n"); tt.want == "" && violated != "" || !strings.Contains(violated, tt.want) {
				t.Errorf("violations %q, want %q", violated, tt.want)
			}
			if got := r.result.Outcomes[0].Excused; !slices.Equal(got, []time.Duration{50 * time.Millisecond}) || r.result.Operations == 0 {
				t.Errorf("excused %v, want 50ms; %d operations", got, r.result.Operations)
			}
			if got := r.result.Times[keeps]; got == nil || !slices.Equal(got.Told, []time.Duration{20 * time.Millisecond}) {
				t.Errorf("holders were told: %+v, want one after 20ms", got)
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
