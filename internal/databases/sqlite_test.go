package databases

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/latchkey-go/latchkey/internal/lockertest"
	"github.com/latchkey-go/latchkey/sqllock"
)

// occupy locks the file for writing, as a long transaction of the service
// would.
func occupy(t *testing.T, db *sql.DB, begin string) (release func()) {
	t.Helper()
	conn := mustConn(t, db)
	execute(t, conn, begin)
	return func() {
		if _, err := conn.ExecContext(context.Background(), "COMMIT"); err != nil {
			t.Error(err)
		}
		_ = conn.Close()
	}
}

// A transaction that locks the file for longer than the lease keeps the session
// from renewing it. Calls say that the database is unavailable. The holder is
// told before another caller gets the lock. A Session with a longer lease keeps
// its lock.
func TestSQLiteFileIsLocked(t *testing.T) {
	t.Parallel()
	o := sqlite(t)
	kept, s := process(t, o), process(t, o, sqllock.WithLease(2*time.Second))
	long, held := mustLock(t, kept, sqllock.ID(2)), awaitLock(t, s, sqllock.ID(1))
	release := occupy(t, open(t, "sqlite", o.DSN), "BEGIN IMMEDIATE")
	lockertest.Eventually(t, "the holder is told", func() bool { return held.Err() != nil })
	if _, err := s.TryLock(t.Context(), sqllock.ID(3)); !errors.Is(err, sqllock.ErrUnavailable) {
		t.Errorf("TryLock while another transaction has locked the file: %v, want ErrUnavailable", err)
	}
	release()
	awaitGrant(t, "the key is free to another Session", kept, sqllock.ID(1))
	awaitGrant(t, "the Session serves again", s, sqllock.ID(3))
	if err := held.Unlock(); err != sqllock.ErrLost {
		t.Errorf("Unlock: %v, want ErrLost", err)
	}
	mustUnlock(t, long)
}

// A transaction that locks the file for longer than SQLite's busy timeout only
// delays a call, which began meanwhile.
func TestSQLiteFileIsLockedForAMoment(t *testing.T) {
	t.Parallel()
	o := sqlite(t)
	s := process(t, o)
	release := occupy(t, open(t, "sqlite", o.DSN), "BEGIN IMMEDIATE")
	result := make(chan error, 1)
	go func() {
		_, err := s.TryLock(t.Context(), sqllock.ID(1))
		result <- err
	}()
	select {
	case err := <-result:
		t.Errorf("TryLock while the file is locked: %v", err)
		result <- nil
	case <-time.After(500 * time.Millisecond): // the busy timeout is 200 ms
	}
	release()
	if err := <-result; err != nil {
		t.Errorf("TryLock: %v", err)
	}
}

// A file that may not grow, as on a full disk, takes no more locks. Those that
// are held stay and can be released, also by a Session on another connection.
func TestSQLiteFull(t *testing.T) {
	t.Parallel()
	o := sqlite(t)
	other := process(t, o)
	kept := mustLock(t, other, sqllock.ID(-2))
	db := open(t, o.Driver, o.DSN)
	db.SetMaxOpenConns(1) // the limit is the connection's
	s := session(t, db)
	lock := mustLock(t, s, sqllock.ID(-1))
	execute(t, db, "PRAGMA max_page_count = 1") // the size that it has
	var err error
	for n := int64(0); err == nil && n < 100_000; n++ {
		_, err = s.TryLock(t.Context(), sqllock.ID(n))
	}
	if !errors.Is(err, sqllock.ErrCapacity) || !strings.Contains(err.Error(), "disk is full") {
		t.Errorf("TryLock: %v, want ErrCapacity that names the disk", err)
	}
	if err := errors.Join(lock.Err(), kept.Err()); err != nil || s.Stats().Losses > 0 {
		t.Errorf("the locks: %v; losses: %v", err, s.Stats().LossesBy)
	}
	mustUnlock(t, kept)
	if err := lock.Unlock(); err != nil && !errors.Is(err, sqllock.ErrUnavailable) {
		t.Error(err)
	}
	execute(t, db, "PRAGMA max_page_count = 1000000")
	awaitGrant(t, "the keys are free, and there is room", s, sqllock.ID(-1))
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
	s := session(t, db, sqllock.WithLease(2*time.Second))
	lock := awaitLock(t, s, sqllock.ID(1))
	file.leadTo(connector(t, readOnly))
	awaitLoss(t, lock)
	awaitError(t, s, sqllock.ID(2), sqllock.ErrConfig, "can only read")
	file.leadTo(connector(t, o))
	awaitGrant(t, "the Session serves again", s, sqllock.ID(1))
}

// An address connects to one server, and to another one after a failover.
type address struct {
	driver.Connector
	mu   sync.Mutex
	next driver.Connector // protected by mu; nil before the failover
}

func (a *address) Connect(ctx context.Context) (driver.Conn, error) {
	a.mu.Lock() // waits for a failover
	defer a.mu.Unlock()
	if a.next != nil {
		return a.next.Connect(ctx)
	}
	return a.Connector.Connect(ctx)
}

// leadTo lets a lead to another server from now on.
func (a *address) leadTo(next driver.Connector) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.next = next
}

// A program opens a file that another one keeps locked for longer than a statement
// waits. It goes on as soon as the file is free.
func TestSQLiteOpenedWhileLocked(t *testing.T) {
	t.Parallel()
	dsn := "file:" + filepath.Join(t.TempDir(), "locked.db")
	other := open(t, "sqlite", dsn)
	execute(t, other, "CREATE TABLE t (n)")
	release := occupy(t, other, "BEGIN EXCLUSIVE")
	var refused atomic.Bool
	db := intercepted(t, lockertest.Orders{Driver: "sqlite", DSN: dsn}, func(_ string, carryOut func() error) error {
		err := carryOut()
		if err != nil && strings.Contains(err.Error(), "SQLITE_BUSY") && !refused.Swap(true) {
			release()
		}
		return err
	})
	s, err := sqllock.Open(t.Context(), db)
	must(t, err)
	if !refused.Load() {
		t.Error("the file was opened while it was locked")
	}
	if err := s.Close(); err != nil {
		t.Error(err)
	}
}

// A Session works if the last user of a pooled connection has left a transaction
// open.
func TestUsedConnectionsOfSQLite(t *testing.T) {
	t.Parallel()
	o := sqlite(t)
	db := open(t, o.Driver, o.DSN)
	db.SetMaxOpenConns(1)
	execute(t, db, "BEGIN")
	s := session(t, db)
	rival := process(t, o)
	for _, begin := range []string{"BEGIN", "BEGIN IMMEDIATE"} {
		execute(t, db, begin)
		lock := mustLock(t, s, sqllock.ID(1))
		if _, err := rival.TryLock(t.Context(), sqllock.ID(1)); !errors.Is(err, sqllock.ErrHeld) {
			t.Errorf("%s: TryLock of what another Session holds: %v, want ErrHeld", begin, err)
		}
		execute(t, db, begin)
		mustUnlock(t, lock)
	}
}
