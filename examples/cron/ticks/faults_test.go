package ticks

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/latchkey-go/latchkey/internal/dbtest"
	"github.com/latchkey-go/latchkey/internal/lockertest"
	"github.com/latchkey-go/latchkey/sqllock"
)

// An instance that loses the lock before the mark is moved leaves the tick to
// the next holder.
func TestLostBeforeMark(test *testing.T) {
	t := onDatabase(test)
	loser := hooked{t.session(), func(lock *sqllock.Lock) {
		t.cut()
		lockertest.Eventually(test, "the loss is known", func() bool { return lock.Err() == sqllock.ErrLost })
	}}
	if _, err := New(loser, t.db, "cron").Begin(t.Context(), "report", Every(time.Hour)); err != sqllock.ErrLost {
		t.Errorf("Begin: %v, want ErrLost", err)
	}
	run, err := t.instance().Begin(t.Context(), "report", Every(time.Hour))
	if err != nil {
		t.Fatalf("Begin of the tick by another: %v", err)
	}
	if err := run.End(); err != nil {
		t.Error(err)
	}
}

// The session works, and the pool of the marks does not. There is no run, the
// error is clear, and the lock is released.
func TestMarksAway(t *testing.T) {
	dbtest.EachDriver(t, func(t *testing.T, driver, dsn string) {
		marks := dbtest.Open(t, driver, "postgres://clerk@127.0.0.1:1/nowhere?sslmode=disable") // a port that nobody has
		_, err := New(dbtest.Session(t, driver, dsn), marks, "cron").Begin(t.Context(), "report", Every(time.Hour))
		if !errors.Is(err, sqllock.ErrUnavailable) || strings.Contains(err.Error(), "127.0.0.1") {
			t.Errorf("Begin: %v, want ErrUnavailable and no host", err)
		}
		if n := dbtest.AdvisoryLocks(t, dbtest.Open(t, driver, dsn)); n != 0 {
			t.Errorf("%d locks are held", n)
		}
	})
}
