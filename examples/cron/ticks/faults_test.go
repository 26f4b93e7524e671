package ticks

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/latchkey-go/latchkey/internal/dbtest"
	"github.com/latchkey-go/latchkey/internal/lockertest"
	"github.com/latchkey-go/latchkey/sqllock"
	"github.com/latchkey-go/latchkey/sqllock/watermark"
)

// No tick is run if the table is missing, or in a schema outside of the
// search_path. The error says what to do, and the lock is free again.
func TestTableMissing(t *testing.T) {
	dbtest.EachDriver(t, func(t *testing.T, driver, dsn string) {
		db, locker := dbtest.Open(t, driver, dsn), dbtest.Session(t, driver, dsn)
		refused := func(name, word string) {
			t.Helper()
			var told record
			ticks := New(locker, db, "cron", WithObserver(told.observer()))
			err := ticks.Do(t.Context(), "report", Every(time.Hour), func(context.Context) { t.Errorf("%s: the job was run", name) })
			if err == nil || !strings.Contains(err.Error(), word) || len(told.refused) != 1 || told.refused[0].Err != err {
				t.Errorf("%s: %v, want a word of %s; the observer was told %v", name, err, word, told.refused)
			}
			if n := dbtest.AdvisoryLocks(t, db); n != 0 {
				t.Errorf("%s: %d locks are held", name, n)
			}
		}
		refused("no table", "watermark.Schema")
		dbtest.Execute(t, db, "CREATE SCHEMA jobs")
		inSchema := dbtest.Open(t, driver, dsn+"&search_path=jobs")
		dbtest.Create(t, inSchema, watermark.Schema(sqllock.PostgreSQL))
		refused("table in another schema", "another schema")
		ran := false
		err := New(locker, inSchema, "cron").Do(t.Context(), "report", Every(time.Hour), func(context.Context) { ran = true })
		if err != nil || !ran {
			t.Errorf("with the schema in the search_path: %v, run %t", err, ran)
		}
	})
}

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
