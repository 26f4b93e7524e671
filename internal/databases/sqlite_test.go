package databases

import (
	"bytes"
	"context"
	"database/sql"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/latchkey-go/latchkey/internal/lockertest"
	"github.com/latchkey-go/latchkey/sqllock"
)

// Open rejects an unusable database with an error that says why, and names no
// file.
func TestSQLiteRefused(t *testing.T) {
	garbage := filepath.Join(t.TempDir(), "garbage.db")
	if err := os.WriteFile(garbage, bytes.Repeat([]byte("not a database. "), 1024), 0o600); err != nil {
		t.Fatal(err)
	}
	small := func(pragma string) string {
		dsn := "file:" + filepath.Join(t.TempDir(), "small.db")
		execute(t, open(t, "sqlite", dsn), "CREATE TABLE t (x)")
		return dsn + pragma
	}
	for _, test := range []struct {
		name, dsn string
		want      error
		says      string
	}{
		{"in memory", ":memory:", sqllock.ErrNotExclusive, "NewMemory"},
		{"shared memory", "file::memory:?cache=shared", sqllock.ErrNotExclusive, "NewMemory"},
		{"read-only", small("?mode=ro"), sqllock.ErrConfig, "can only be read"},
		{"query_only", small("?_pragma=query_only(1)"), sqllock.ErrConfig, "query_only"},
		{"damaged", "file:" + garbage, sqllock.ErrConfig, "damaged"},
		{"no directory", "file:" + filepath.Join(t.TempDir(), "none", "app.db"), sqllock.ErrUnavailable, "could not be opened"},
		{"full", small("?_pragma=max_page_count(2)"), sqllock.ErrCapacity, "full"},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			s, err := sqllock.Open(t.Context(), open(t, "sqlite", test.dsn))
			if err == nil {
				_ = s.Close()
				t.Fatal("Open succeeded")
			}
			if !errors.Is(err, test.want) || !strings.Contains(err.Error(), test.says) {
				t.Errorf("Open: %v; want %v that mentions %q", err, test.want, test.says)
			}
			if strings.Contains(err.Error(), ".db") {
				t.Errorf("the error names the file: %v", err)
			}
		})
	}
}

// occupy locks the file for writing, as a long transaction of the service
// would.
func occupy(t *testing.T, db *sql.DB) (release func()) {
	t.Helper()
	conn, err := db.Conn(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := conn.ExecContext(context.Background(), "BEGIN IMMEDIATE"); err != nil {
		t.Fatal(err)
	}
	return func() {
		if _, err := conn.ExecContext(context.Background(), "COMMIT"); err != nil {
			t.Error(err)
		}
		_ = conn.Close()
	}
}

func TestSQLiteFileIsLocked(t *testing.T) {
	t.Parallel()
	o := sqlite(t)
	s := process(t, o, sqllock.WithLease(time.Minute))
	held := mustLock(t, s, sqllock.ID(1))
	release := occupy(t, open(t, "sqlite", o.DSN))
	_, err := s.TryLock(t.Context(), sqllock.ID(2))
	if !errors.Is(err, sqllock.ErrUnavailable) {
		t.Errorf("TryLock while another transaction has locked the file: %v, want ErrUnavailable", err)
	}
	release()
	lockertest.Eventually(t, "the session serves again", func() bool {
		lock, err := s.TryLock(t.Context(), sqllock.ID(2))
		return err == nil && lock.Unlock() == nil
	})
	if err := held.Err(); err != nil {
		t.Errorf("a lock that was held before: %v", err)
	}
	if err := held.Unlock(); err != nil {
		t.Error(err)
	}
}

// A transaction that locks the file for longer than the lease keeps the session
// from renewing it. The holder is notified before another caller gets the lock.
func TestSQLiteFileIsLockedForLong(t *testing.T) {
	t.Parallel()
	o := sqlite(t)
	s, other := process(t, o, sqllock.WithLease(2*time.Second)), process(t, o, sqllock.WithLease(2*time.Second))
	held := mustLock(t, s, sqllock.ID(1))
	release := occupy(t, open(t, "sqlite", o.DSN))
	<-held.Context().Done()
	release()
	lockertest.Eventually(t, "the key is free", func() bool {
		lock, err := other.TryLock(t.Context(), sqllock.ID(1))
		return err == nil && lock.Unlock() == nil
	})
	if err := held.Unlock(); err != sqllock.ErrLost {
		t.Errorf("Unlock: %v, want ErrLost", err)
	}
}

// On a full disk new locks are rejected. Held locks stay held, and can be
// released.
func TestSQLiteDiskFull(t *testing.T) {
	t.Parallel()
	o := sqlite(t)
	s := process(t, o)
	held := mustLock(t, s, sqllock.ID(-1))
	db := open(t, "sqlite", o.DSN)
	pages := number(t, db, "PRAGMA page_count")
	full := session(t, limited(t, o.DSN, pages))
	if taken, err := fillFile(t, full); !errors.Is(err, sqllock.ErrCapacity) {
		t.Fatalf("TryLock on a full disk, after %d locks: %v, want ErrCapacity", taken, err)
	}
	if err := held.Err(); err != nil {
		t.Errorf("a lock that was held before: %v", err)
	}
	if err := full.Close(); err != nil {
		t.Error(err)
	}
	if n := number(t, db, leaseRows); n != 1 {
		t.Errorf("%d locks remain, want 1", n)
	}
	if err := held.Unlock(); err != nil {
		t.Error(err)
	}
}

// limited opens a pool whose connections see a disk with room for little more
// than this number of pages.
func limited(t *testing.T, dsn string, pages int) *sql.DB {
	t.Helper()
	return open(t, "sqlite", dsn+"&_pragma=max_page_count("+itoa(pages+2)+")")
}

// The connections of the pool belong to the service. A Session that changes a
// setting of one for a moment restores it.
func TestSQLiteSettingsAreRestored(t *testing.T) {
	t.Parallel()
	db := open(t, "sqlite", "file:"+filepath.Join(t.TempDir(), "app.db")+"?_pragma=busy_timeout(1234)&_pragma=synchronous(2)")
	db.SetMaxOpenConns(1)
	s := session(t, db)
	if err := mustLock(t, s, sqllock.ID(1)).Unlock(); err != nil {
		t.Fatal(err)
	}
	for pragma, want := range map[string]int{"busy_timeout": 1234, "synchronous": 2} {
		if got := number(t, db, "PRAGMA "+pragma); got != want {
			t.Errorf("%s is %d, want %d as before", pragma, got, want)
		}
	}
}
