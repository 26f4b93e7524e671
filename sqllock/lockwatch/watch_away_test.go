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

// A connector counts connections that are wanted, and gives none.
type connector struct {
	wanted  atomic.Int64
	connect func() error
}

func (c *connector) Connect(context.Context) (driver.Conn, error) {
	c.wanted.Add(1)
	return nil, c.connect()
}

func (c *connector) Driver() driver.Driver { return nil }

// watchFor has Watch look at a database that c does not reach for so long, every five seconds.
func watchFor(t *testing.T, c *connector, d time.Duration) (told []Finding) {
	t.Helper()
	db := sql.OpenDB(c)
	defer db.Close()
	ctx, cancel := context.WithTimeout(t.Context(), d)
	defer cancel()
	report := func(f Finding) { told = append(told, f) }
	if err := Watch(ctx, db, report, WithInterval(5*time.Second), WithLogger(slog.New(slog.DiscardHandler))); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("Watch: %v", err)
	}
	return told
}

// A database that is away is asked once in each interval, and told of once.
func TestWatchDoesNotSpin(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := &connector{connect: func() error { return io.ErrUnexpectedEOF }}
		told := watchFor(t, c, time.Minute+time.Second)
		if n := c.wanted.Load(); n != 13 { // at 0 s, 5 s, …, 60 s
			t.Errorf("%d attempts in a minute, want 13", n)
		}
		if len(told) != 1 || told[0].Kind != WatchFailed || !errors.Is(told[0].Err, sqllock.ErrUnavailable) {
			t.Errorf("told %+v", told)
		}
	})
}

// A driver that heeds no context is asked once, and does not keep Watch.
func TestWatchStuckDriver(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		release := make(chan struct{})
		c := &connector{connect: func() error { <-release; return io.ErrUnexpectedEOF }}
		told := watchFor(t, c, time.Minute)
		if n := c.wanted.Load(); n != 1 {
			t.Errorf("%d questions are stuck in the driver, want 1", n)
		}
		if len(told) != 1 || !errors.Is(told[0].Err, sqllock.ErrUnavailable) || !strings.Contains(told[0].Err.Error(), "5s") {
			t.Errorf("told %+v", told)
		}
		close(release)
		synctest.Wait()
	})
}
