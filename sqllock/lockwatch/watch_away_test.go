package lockwatch

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"io"
	"log/slog"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/latchkey-go/latchkey/sqllock"
)

// A connector counts the connections that are requested, and opens none.
type connector struct {
	wanted  atomic.Int64
	connect func() error
}

func (c *connector) Connect(context.Context) (driver.Conn, error) {
	c.wanted.Add(1)
	return nil, c.connect()
}

func (c *connector) Driver() driver.Driver { return nil }

// If the database is away, Watch tries once in each interval and reports it once.
// If the driver ignores contexts, Watch calls it once, and ends in time.
func TestWatchAway(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		stuck bool
		calls int64
		says  string
	}{
		"away":  {false, 13, "unavailable"}, // at 0 s, 5 s, …, 60 s
		"stuck": {true, 1, "in time"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				release := make(chan struct{})
				c := &connector{connect: func() error {
					if tt.stuck {
						<-release
					}
					return io.ErrUnexpectedEOF
				}}
				db := sql.OpenDB(c)
				defer db.Close()
				defer synctest.Wait()
				defer close(release)
				ctx, cancel := context.WithTimeout(t.Context(), time.Minute+time.Second)
				defer cancel()
				var reported []Finding
				report := func(f Finding) { reported = append(reported, f) }
				err := Watch(ctx, db, report, WithInterval(5*time.Second), WithLogger(slog.New(slog.DiscardHandler)))
				if !errors.Is(err, context.DeadlineExceeded) {
					t.Errorf("Watch: %v", err)
				}
				if n := c.wanted.Load(); n != tt.calls {
					t.Errorf("%d attempts in a minute, want %d", n, tt.calls)
				}
				if len(reported) != 1 || reported[0].Kind != WatchFailed || !errors.Is(reported[0].Err, sqllock.ErrUnavailable) ||
					!strings.Contains(reported[0].Err.Error(), tt.says) {
					t.Errorf("reported %+v", reported)
				}
			})
		})
	}
}

// If the driver ignores contexts, Inspect ends with its context, and an Inspector
// gives the driver no second question.
func TestInspectStuckDriver(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		thaw := make(chan struct{})
		c := &connector{connect: func() error { <-thaw; return io.ErrUnexpectedEOF }}
		db := sql.OpenDB(c)
		defer db.Close()
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if _, err := Inspect(ctx, db); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("Inspect: %v, want context.DeadlineExceeded", err)
		}
		inspector := NewInspector(db)
		ctx, cancel = context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		first := make(chan error)
		go func() { _, err := inspector.Inspect(ctx); first <- err }()
		synctest.Wait()
		if _, err := inspector.Inspect(t.Context()); !errors.Is(err, sqllock.ErrUnavailable) || !strings.Contains(err.Error(), "stuck") {
			t.Errorf("a second question: %v", err)
		}
		if err := <-first; !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("the first question: %v, want context.DeadlineExceeded", err)
		}
		if n := c.wanted.Load(); n != 2 {
			t.Errorf("%d questions are stuck in the driver, want that of each", n)
		}
		close(thaw)
		synctest.Wait()
		if _, err := inspector.Inspect(t.Context()); !errors.Is(err, sqllock.ErrUnavailable) || strings.Contains(err.Error(), "stuck") {
			t.Errorf("after the thaw: %v", err)
		}
	})
}
