package databases

import (
	"context"
	"database/sql"
	"errors"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/latchkey-go/latchkey/internal/lockertest"
	"github.com/latchkey-go/latchkey/sqllock"
)

// Rows that are deleted by hand, or were lost in a restore to an earlier state,
// free their locks. The session finds out at its next heartbeat, or when it
// releases, ends with all its locks, and begins anew.
func TestLeaseTableRowsAreGone(t *testing.T) {
	eachLeaseTable(t, func(t *testing.T, o lockertest.Orders) {
		db := open(t, o.Driver, o.DSN)
		for _, tt := range []struct {
			gone      []string
			heartbeat time.Duration
		}{
			{[]string{"DELETE FROM latchkey_sessions"}, 50 * time.Millisecond},
			{[]string{"UPDATE latchkey_sessions SET statement = 0", "DELETE FROM latchkey_locks"}, 50 * time.Millisecond},
			{[]string{"DELETE FROM latchkey_sessions WHERE id IN (SELECT session FROM latchkey_locks)"}, time.Hour},
			{[]string{"DELETE FROM latchkey_locks WHERE key_id = 1"}, time.Hour},
		} {
			s, other := process(t, o, sqllock.WithLease(10*time.Hour), sqllock.WithHeartbeat(tt.heartbeat)), process(t, o)
			lock := mustLock(t, s, sqllock.ID(1))
			mustLock(t, s, sqllock.ID(2))
			for _, statement := range tt.gone {
				execute(t, db, statement)
			}
			if tt.heartbeat == time.Hour { // none comes
				mustUnlock(t, mustLock(t, other, sqllock.ID(1)))
				if err := lock.Unlock(); err != sqllock.ErrLost {
					t.Errorf("%s: Unlock: %v, want ErrLost", tt.gone, err)
				}
			} else {
				awaitLoss(t, lock)
			}
			awaitGrant(t, "the other key of the session is free", other, sqllock.ID(2))
			awaitGrant(t, "the session serves again", s, sqllock.ID(1))
			_, _ = s.Close(), other.Close()
		}
	})
}

// A lease table keeps a session for the whole of its lease. Nothing that another
// session does ends it before.
func TestLeaseTableKeepsALeaseWhole(t *testing.T) {
	eachLeaseTable(t, func(t *testing.T, o lockertest.Orders) {
		holder := process(t, o, sqllock.WithLease(time.Hour))
		lock := mustLock(t, holder, sqllock.ID(1))
		other := process(t, o, sqllock.WithLease(time.Hour)) // removes what has expired
		if _, err := other.TryLock(t.Context(), sqllock.ID(1)); !errors.Is(err, sqllock.ErrHeld) {
			t.Errorf("TryLock of a key that is held: %v, want ErrHeld", err)
		}
		left := "SELECT CAST(extract(epoch FROM min(expires) - clock_timestamp()) AS integer) FROM latchkey_sessions"
		switch o.Driver {
		case "mysql":
			left = "SELECT MIN(expires) DIV 1000000 - UNIX_TIMESTAMP() FROM latchkey_sessions"
		case "sqlite":
			left = "SELECT (min(expires) - CAST((julianday('now') - 2440587.5) * 86400000.0 AS INTEGER)) / 1000 FROM latchkey_sessions"
		}
		if seconds := number(t, pool(t, o), left); seconds < 50*60 {
			t.Errorf("of an hour's lease %d s are left", seconds)
		}
		mustUnlock(t, lock)
	})
}

// openAtOnce opens n Sessions on o at the same moment, each in a process of its
// own.
func openAtOnce(t *testing.T, o lockertest.Orders, n int) {
	t.Helper()
	var opened sync.WaitGroup
	for range n {
		db := open(t, o.Driver, o.DSN)
		opened.Go(func() {
			s, err := sqllock.Open(context.Background(), db, o.Options()...)
			if err == nil {
				err = s.Close()
			}
			if err != nil {
				t.Errorf("of %d Sessions at once: %v", n, err)
			}
		})
	}
	opened.Wait()
}

// Sessions that create the tables at the same moment all succeed. In SQLite one
// of them sets the journal, with the file locked for a moment.
func TestLeaseTableMadeAtOnce(t *testing.T) {
	eachLeaseTable(t, func(t *testing.T, o lockertest.Orders) {
		openAtOnce(t, o, 8)
		for range 10 {
			if isSQLite(o) {
				openAtOnce(t, sqlite(t), 4)
			}
		}
	})
}

// Open says why a pool lends no connection, whether it first has to find out
// the dialect or not.
func TestLeaseTablePoolWithoutConnections(t *testing.T) {
	eachLeaseTable(t, func(t *testing.T, o lockertest.Orders) {
		closed := open(t, o.Driver, o.DSN)
		_ = closed.Close()
		busy := open(t, o.Driver, o.DSN)
		busy.SetMaxOpenConns(1)
		mustConn(t, busy)
		var wg sync.WaitGroup
		for _, named := range [][]sqllock.Option{nil, {sqllock.WithDialect(dialectOf(o))}} {
			for _, tt := range []struct {
				says string
				db   *sql.DB
				opts []sqllock.Option
			}{
				{"the *sql.DB was closed", closed, nil},
				{"no connection of the pool", busy, []sqllock.Option{sqllock.WithLease(2 * time.Second)}}, // with short bounds
			} {
				wg.Go(func() {
					_, err := sqllock.Open(context.Background(), tt.db, slices.Concat(o.Options(), named, tt.opts)...)
					if !errors.Is(err, sqllock.ErrUnavailable) || !strings.Contains(err.Error(), tt.says) {
						t.Errorf("Open: %v, want ErrUnavailable that mentions %q", err, tt.says)
					}
				})
			}
		}
		wg.Wait()
	})
}

// Another transaction has inserted a key's row and not committed. The key is
// unavailable then, and the session loses no other lock. The simulation shows
// that for times longer than the lease.
func TestLongLeaseTableStuckKey(t *testing.T) {
	eachLeaseTable(t, func(t *testing.T, o lockertest.Orders) {
		if isSQLite(o) {
			t.Skip("in SQLite this would be a lock on the file")
		}
		s := process(t, o, sqllock.WithLease(time.Minute)) // a statement waits for 12 s
		lock := mustLock(t, s, sqllock.ID(1))
		stuck := mustBegin(t, open(t, o.Driver, o.DSN))
		columns, values := "acquired", "now()"
		if o.Driver == "mysql" {
			columns, values = "statement", "1"
		}
		execute(t, stuck, "INSERT INTO latchkey_locks (key_space, key_id, session, "+columns+") VALUES (0, 2, 77, "+values+")")
		for range 2 {
			if _, err := s.TryLock(t.Context(), sqllock.ID(2)); !errors.Is(err, sqllock.ErrUnavailable) {
				t.Errorf("TryLock of the blocked key: %v, want ErrUnavailable", err)
			}
		}
		must(t, stuck.Rollback())
		awaitGrant(t, "the key is free", s, sqllock.ID(2))
		if err := lock.Unlock(); err != nil {
			t.Errorf("Unlock: %v; losses: %v", err, s.Stats().LossesBy)
		}
	})
}

// errAmbiguous is the error with which CockroachDB reports that it does not
// know whether it ran a statement.
var errAmbiguous = ambiguous{errors.New("result is ambiguous")}

type ambiguous struct{ error }

func (ambiguous) SQLState() string { return "40003" }

// A statement with an ambiguous result is not repeated. The session finds out
// what happened, and goes on.
func TestLeaseTableAmbiguousResult(t *testing.T) {
	eachLeaseTable(t, func(t *testing.T, o lockertest.Orders) {
		if isSQLite(o) {
			t.Skip("SQLite has no SQLSTATEs")
		}
		var armed atomic.Bool
		s := session(t, intercepted(t, o, func(query string, carryOut func() error) error {
			err := carryOut()
			takes := strings.Contains(query, "won AS") || strings.HasPrefix(query, "INSERT IGNORE") && !isTiDB(o) || strings.HasPrefix(query, "COMMIT")
			if err == nil && takes && armed.Swap(false) {
				return errAmbiguous
			}
			return err
		}), append(o.Options(), sqllock.WithLease(time.Hour))...)
		first := mustLock(t, s, sqllock.ID(1))
		armed.Store(true)
		second := mustLock(t, s, sqllock.ID(2)) // this statement was carried out
		if armed.Load() {
			t.Error("no result was ambiguous")
		}
		mustUnlock(t, first)
		mustUnlock(t, second)
		if n := s.Stats().Losses; n > 0 {
			t.Errorf("%d losses, want none", n)
		}
	})
}
