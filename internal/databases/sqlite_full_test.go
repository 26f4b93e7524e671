package databases

import (
	"database/sql"
	"database/sql/driver"
	"errors"
	"strings"
	"testing"

	"github.com/latchkey-go/latchkey/internal/lockertest"
	"github.com/latchkey-go/latchkey/sqllock"
)

// A file that may not grow, as on a full disk, takes no more locks. Those that
// are held stay and can be released.
func TestSQLiteFull(t *testing.T) {
	t.Parallel()
	o := sqlite(t)
	create(t, open(t, o.Driver, o.DSN), sqllock.Schema(sqllock.SQLite), sqllock.FenceSchema(sqllock.SQLite))
	db := open(t, o.Driver, o.DSN)
	db.SetMaxOpenConns(1) // the limit is the connection's
	s := session(t, db)
	lock := mustLock(t, s, sqllock.ID(-1))
	execute(t, db, "PRAGMA max_page_count = 1") // the size that it has
	taken, err := fillFile(t, s)
	if !errors.Is(err, sqllock.ErrCapacity) || !strings.Contains(err.Error(), "disk is full") {
		t.Errorf("TryLock after %d locks: %v, want ErrCapacity that names the disk", taken, err)
	}
	if err := lock.Err(); err != nil || s.Stats().Losses > 0 {
		t.Errorf("the lock: %v; losses: %v", err, s.Stats().LossesBy)
	}
	if err := lock.Unlock(); err != nil && !errors.Is(err, sqllock.ErrUnavailable) {
		t.Error(err)
	}
	execute(t, db, "PRAGMA max_page_count = 1000000")
	lockertest.Eventually(t, "the keys are free, and there is room", func() bool {
		lock, err := s.TryLock(t.Context(), sqllock.ID(-1))
		return err == nil && lock.Unlock() == nil
	})
}

// fillFile takes locks until one is rejected, and returns how many it took. A call that
// a slow disk fails is made again.
func fillFile(t *testing.T, s *sqllock.Session) (taken int, err error) {
	t.Helper()
	lockertest.Eventually(t, "a lock is rejected", func() bool {
		for err = nil; err == nil && taken < 100_000; taken++ {
			_, err = s.TryLock(t.Context(), sqllock.ID(int64(taken)))
		}
		return !errors.Is(err, sqllock.ErrUnavailable)
	})
	return taken, err
}

// A file that can only be read takes no locks, and a Session that cannot renew
// those that it holds loses them after the lease. It serves again when it can
// write.
func TestSQLiteReadOnly(t *testing.T) {
	t.Parallel()
	o := sqlite(t)
	create(t, open(t, o.Driver, o.DSN), sqllock.Schema(sqllock.SQLite))
	readOnly := o
	readOnly.DSN += "&_pragma=query_only(1)" // its error is that of a file without the right to write
	file := &address{Connector: connector(t, o)}
	db := sql.OpenDB(file)
	t.Cleanup(func() { _ = db.Close() })
	db.SetMaxIdleConns(-1) // each statement has a connection of its own
	s := session(t, db, sqllock.WithLease(lease))
	lock := mustLock(t, s, sqllock.ID(1))
	file.leadTo(connector(t, readOnly))
	lockertest.Eventually(t, "the holder is told", func() bool { return lock.Err() != nil })
	var err error
	lockertest.Eventually(t, "calls say why", func() bool {
		_, err = s.TryLock(t.Context(), sqllock.ID(2))
		return err != nil && strings.Contains(err.Error(), "can only read")
	})
	if !errors.Is(err, sqllock.ErrConfig) {
		t.Errorf("TryLock: %v, want ErrConfig", err)
	}
	file.leadTo(connector(t, o))
	lockertest.Eventually(t, "the Session serves again", func() bool {
		lock, err := s.TryLock(t.Context(), sqllock.ID(1))
		return err == nil && lock.Unlock() == nil
	})
}

// leadTo lets a lead to another server from now on.
func (a *address) leadTo(next driver.Connector) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.next = next
}
