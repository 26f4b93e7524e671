package databases

import (
	"context"
	"database/sql"
	"errors"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/latchkey-go/latchkey/internal/lockertest"
	"github.com/latchkey-go/latchkey/sqllock"
)

// withoutWAL opens a session in a file whose journal mode could not be changed,
// because another connection was reading.
func withoutWAL(t *testing.T, o lockertest.Orders, watch func(query string), opts ...sqllock.Option) *sqllock.Session {
	t.Helper()
	reading := beginReading(t, open(t, o.Driver, o.DSN))
	var once sync.Once
	return session(t, intercepted(t, o, func(query string, carryOut func() error) error {
		watch(query)
		if query == "COMMIT" { // the reader has blocked WAL, and must block nothing else
			once.Do(func() { _ = reading.Rollback() })
		}
		return carryOut()
	}), opts...)
}

// beginReading locks the file for reading.
func beginReading(t *testing.T, db *sql.DB) *sql.Tx {
	t.Helper()
	tx, err := read(db)
	if err != nil {
		t.Fatal(err)
	}
	return tx
}

// read is beginReading with an error instead of a failed test.
func read(db *sql.DB) (*sql.Tx, error) {
	tx, err := db.BeginTx(context.Background(), nil)
	if err != nil {
		return nil, err
	}
	var n int
	if err := tx.QueryRow("SELECT count(*) FROM sqlite_master").Scan(&n); err != nil {
		_ = tx.Rollback()
		return nil, err
	}
	return tx, nil
}

// Without a write-ahead log a commit waits for readers. Readers that overlap
// for ever, each for longer than one attempt to commit, do not starve the
// session.
func TestSQLiteReadersWithoutWAL(t *testing.T) {
	t.Parallel()
	o := sqlite(t)
	const lease = 5 * time.Second
	s := withoutWAL(t, o, func(string) {}, sqllock.WithLease(lease))
	db := open(t, o.Driver, o.DSN)
	var mode string
	err := db.QueryRow("PRAGMA journal_mode").Scan(&mode)
	if err != nil || mode != "delete" {
		t.Fatalf("journal_mode is %s, %v; want delete", mode, err)
	}
	lock := mustLock(t, s, sqllock.ID(1))
	impatient := open(t, o.Driver, strings.Replace(o.DSN, "busy_timeout(5000)", "busy_timeout(0)", 1))
	reading := beginReading(t, impatient)
	for until := time.Now().Add(2 * lease); time.Now().Before(until); {
		time.Sleep(500 * time.Millisecond) // a query
		var next *sql.Tx
		for end := time.Now().Add(400 * time.Millisecond); next == nil && time.Now().Before(end); time.Sleep(time.Millisecond) { // polling
			next, _ = read(impatient)
		}
		_ = reading.Rollback()
		if next == nil { // a commit waits for the file
			lockertest.Eventually(t, "there is room for a reader", func() bool {
				next, err = read(impatient)
				return err == nil
			})
		}
		reading = next
	}
	_ = reading.Rollback()
	if err := lock.Err(); err != nil {
		t.Errorf("the lock among readers: %v, %d losses", err, s.Stats().Losses)
	}
	// A commit that has waited for the last reader may not have been noted yet.
	// Until it is, the session says that the database does not answer. It releases
	// the lock all the same.
	if err := lock.Unlock(); err != nil && !errors.Is(err, sqllock.ErrUnavailable) {
		t.Errorf("Unlock: %v", err)
	}
	ctx, cancel := context.WithTimeout(context.Background(), lease)
	defer cancel()
	other, err := session(t, db).Lock(ctx, sqllock.ID(1))
	if err != nil {
		t.Fatalf("Lock of another session after Unlock: %v", err)
	}
	mustUnlock(t, other)
}

// The setting synchronous of a connection is lowered only where that is safe.
func TestSQLiteSynchronousWithoutWAL(t *testing.T) {
	t.Parallel()
	o := sqlite(t)
	o.DSN += "&_pragma=synchronous(full)"
	var lowered atomic.Bool
	s := withoutWAL(t, o, func(query string) {
		if strings.Contains(query, "synchronous =") {
			lowered.Store(true)
		}
	})
	lowered.Store(false) // ignore the time before Open knew the journal mode
	if err := mustLock(t, s, sqllock.ID(1)).Unlock(); err != nil {
		t.Error(err)
	}
	if lowered.Load() {
		t.Error("synchronous was changed for a journal that is not written ahead")
	}
}
