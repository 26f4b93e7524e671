package session

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/latchkey-go/latchkey/internal/keytable"
)

// newPolled runs test in virtual time with a table that has no calls.
func newPolled(t *testing.T, test func(t *testing.T, table *Table)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		test(t, NewTable(keytable.Config{Wake: func() {}}, AnswerTimeout, func() error { return ErrNoAnswer }))
	})
}

const step = time.Millisecond

// awaitPoll waits for the poll that is to come, and up to a step longer.
func awaitPoll(table *Table) {
	for {
		table.mu.Lock()
		comes := table.polls
		table.mu.Unlock()
		if !comes {
			return
		}
		time.Sleep(step)
	}
}

// The pause between polls doubles up to a bound. It begins anew when there is more
// to poll for, and after there was nothing.
func TestPauseBetweenPolls(t *testing.T) {
	newPolled(t, func(t *testing.T, table *Table) {
		for i, tt := range []struct {
			waiting int
			want    time.Duration
		}{
			{1, pollFirst}, {1, 2 * pollFirst}, {1, 4 * pollFirst}, {1, 8 * pollFirst}, {1, pollMax}, {1, pollMax},
			{2, pollFirst}, {1, 2 * pollFirst}, {0, 0}, {1, pollFirst},
		} {
			if table.look(tt.waiting); table.pause != tt.want {
				t.Errorf("look %d: a pause of %v, want %v", i, table.pause, tt.want)
			}
			began := time.Now()
			awaitPoll(table)
			if took := time.Since(began); took > tt.want+step {
				t.Errorf("look %d: a poll after %v, want one within %v", i, took, tt.want)
			}
			time.Sleep(time.Minute)
		}
	})
}

// A few polls may follow each other closely. In the long run they do not.
func TestPollsInTheLongRun(t *testing.T) {
	newPolled(t, func(t *testing.T, table *Table) {
		began := time.Now()
		for n := 1; n <= 100; n++ {
			table.look(n)
			awaitPoll(table)
			took := time.Since(began)
			if n == pollBurst && took > pollBurst*(pollFirst+step) {
				t.Errorf("the first %d polls took %v", n, took)
			}
			if least := time.Duration(n-1-pollBurst) * pollEvery; took < least || n == 100 && took > least+pollBurst*pollEvery {
				t.Errorf("%d polls took %v, want %v at least", n, took, least)
			}
		}
	})
}
