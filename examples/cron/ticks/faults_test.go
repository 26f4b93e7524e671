package ticks

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/latchkey-go/latchkey/internal/lockertest"
	"github.com/latchkey-go/latchkey/internal/pgtest"
	"github.com/latchkey-go/latchkey/sqllock"
	"github.com/latchkey-go/latchkey/sqllock/watermark"
)

// No tick is run if the table is missing, or in a schema outside of the
// search_path. The error says what to do, and the lock is free again.
func TestTableMissing(t *testing.T) {
	for _, driver := range pgtest.Drivers() {
		t.Run(driver, func(t *testing.T) {
			t.Parallel()
			dsn := pgtest.Database(t)
			db := open(t, driver, dsn)
			locker := session(t, driver, dsn)
			refused := func(name, word string) {
				t.Helper()
				var told record
				ticks := New(locker, db, "cron", WithObserver(told.observer()))
				err := ticks.Do(t.Context(), "report", Every(time.Hour), func(context.Context) { t.Errorf("%s: the job was run", name) })
				if err == nil || !strings.Contains(err.Error(), word) || len(told.refused) != 1 || told.refused[0].Err != err {
					t.Errorf("%s: %v, want a word of %s; the observer was told %v", name, err, word, told.refused)
				}
				if n := locks(t, db); n != 0 {
					t.Errorf("%s: %d locks are held", name, n)
				}
			}
			refused("no table", "watermark.Schema")
			execute(t, db, "CREATE SCHEMA jobs")
			inSchema := open(t, driver, dsn+"&search_path=jobs")
			create(t, inSchema)
			refused("table in another schema", "another schema")
			ran := false
			err := New(locker, inSchema, "cron").Do(t.Context(), "report", Every(time.Hour), func(context.Context) { ran = true })
			if err != nil || !ran {
				t.Errorf("with the schema in the search_path: %v, run %t", err, ran)
			}
		})
	}
}

// While the database is away no tick is run, and each instance says so.
// Afterwards they go on by themselves, and what was run before is not run
// again.
func TestDatabaseAway(t *testing.T) {
	for _, driver := range pgtest.Drivers() {
		t.Run(driver, func(t *testing.T) {
			t.Parallel()
			cluster := pgtest.New(t)
			dsn := cluster.DSN("")
			create(t, open(t, driver, dsn))
			clock := newHandClock()
			s := Every(time.Second)
			var (
				told  record
				fleet []*Ticks
			)
			for _, by := range []time.Duration{0, 2 * time.Second, 5 * time.Second} {
				fleet = append(fleet, New(session(t, driver, dsn), open(t, driver, dsn), "cron",
					WithClock(clock.behind(by)), WithObserver(told.observer())))
			}
			run, err := fleet[0].Begin(t.Context(), "report", s)
			if err != nil {
				t.Fatal(err)
			}
			work, cancel := run.Bind(t.Context())
			defer cancel()
			if err := cluster.Stop(); err != nil {
				t.Fatal(err)
			}
			<-work.Done()
			if cause := context.Cause(work); cause != sqllock.ErrLost {
				t.Errorf("the work's context ended with %v, want ErrLost", cause)
			}
			if err := run.End(); err != sqllock.ErrLost {
				t.Errorf("End: %v, want ErrLost", err)
			}
			for range 10 {
				clock.forward(time.Second)
				for _, ticks := range fleet {
					_, err := ticks.Begin(t.Context(), "report", s)
					if !errors.Is(err, sqllock.ErrUnavailable) {
						t.Errorf("Begin while the database is away: %v, want ErrUnavailable", err)
					}
					if err != nil && strings.Contains(err.Error(), "127.0.0.1") {
						t.Errorf("the error names the host: %v", err)
					}
				}
			}
			if err := cluster.StartAgain(); err != nil {
				t.Fatal(err)
			}
			// Those that are behind come to ticks that were due before the
			// stop, too.
			for range 10 {
				for _, ticks := range fleet {
					lockertest.Eventually(t, "it runs a tick, or says that it was run", func() bool {
						run, err := ticks.Begin(t.Context(), "report", s)
						if err == nil {
							return run.End() == nil
						}
						return errors.Is(err, watermark.ErrPassed)
					})
				}
				clock.forward(time.Second)
			}
			if n := told.once(t, s); n != 1+10 {
				t.Errorf("%d ticks were run, want 1 before and 10 after", n)
			}
		})
	}
}

// An instance that loses the lock before the mark is moved leaves the tick to
// the next holder.
func TestLostBeforeMark(t *testing.T) {
	eachDriver(t, func(t *testing.T, driver, dsn string) {
		db := open(t, driver, dsn)
		loser := hooked{session(t, driver, dsn), func(lock *sqllock.Lock) {
			execute(t, db, `SELECT pg_terminate_backend(pid) FROM pg_locks WHERE locktype = 'advisory'
				AND database = (SELECT oid FROM pg_database WHERE datname = current_database())`)
			lockertest.Eventually(t, "the loss is known", func() bool { return lock.Err() == sqllock.ErrLost })
		}}
		if _, err := New(loser, db, "cron").Begin(t.Context(), "report", Every(time.Hour)); err != sqllock.ErrLost {
			t.Errorf("Begin: %v, want ErrLost", err)
		}
		run, err := New(session(t, driver, dsn), db, "cron").Begin(t.Context(), "report", Every(time.Hour))
		if err != nil {
			t.Fatalf("Begin of the tick by another: %v", err)
		}
		if err := run.End(); err != nil {
			t.Error(err)
		}
	})
}

// The session works, and the pool of the marks does not. There is no run, the
// error is clear, and the lock is released.
func TestMarksAway(t *testing.T) {
	eachDriver(t, func(t *testing.T, driver, dsn string) {
		away := pgtest.New(t)
		marks := open(t, driver, away.DSN(""))
		if err := away.Stop(); err != nil {
			t.Fatal(err)
		}
		_, err := New(session(t, driver, dsn), marks, "cron").Begin(t.Context(), "report", Every(time.Hour))
		if !errors.Is(err, sqllock.ErrUnavailable) || strings.Contains(err.Error(), "127.0.0.1") {
			t.Errorf("Begin: %v, want ErrUnavailable and no host", err)
		}
		if n := locks(t, open(t, driver, dsn)); n != 0 {
			t.Errorf("%d locks are held", n)
		}
	})
}
