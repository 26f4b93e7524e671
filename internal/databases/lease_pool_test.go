package databases

import (
	"context"
	"database/sql"
	"errors"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/latchkey-go/latchkey/internal/lockertest"
	"github.com/latchkey-go/latchkey/sqllock"
)

// Open says why a pool lends no connection, whether it first has to find out
// the dialect or not.
func TestLeaseTablePoolWithoutConnections(t *testing.T) {
	t.Parallel()
	eachLeaseTable(t, func(t *testing.T, o lockertest.Orders) {
		named := sqllock.WithDialect(sqllock.SQLite)
		if o.LeaseTable {
			named = sqllock.WithDialect(sqllock.PostgreSQL)
		}
		closed := open(t, o.Driver, o.DSN)
		_ = closed.Close()
		busy := open(t, o.Driver, o.DSN)
		busy.SetMaxOpenConns(1)
		conn, err := busy.Conn(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		var wg sync.WaitGroup
		for _, opts := range [][]sqllock.Option{o.Options(), append(o.Options(), named)} {
			for _, tt := range []struct {
				db   *sql.DB
				says string
			}{
				{closed, "the *sql.DB was closed"},
				{busy, "no connection of the pool"},
			} {
				wg.Go(func() {
					_, err := sqllock.Open(context.Background(), tt.db, opts...)
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
// unavailable then, and the session loses no other lock.
func TestLeaseTableStuckKey(t *testing.T) {
	t.Parallel()
	eachLeaseTable(t, func(t *testing.T, o lockertest.Orders) {
		if !o.LeaseTable {
			t.Skip("in SQLite this would be a lock on the file")
		}
		const lease = 5 * time.Second
		s := process(t, o, sqllock.WithLease(lease))
		lock := mustLock(t, s, sqllock.ID(1))
		stuck, err := open(t, o.Driver, o.DSN).BeginTx(context.Background(), nil)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := stuck.Exec("INSERT INTO latchkey_locks (key_space, key_id, session, acquired) VALUES (0, 2, 77, now())"); err != nil {
			t.Fatal(err)
		}
		for until := time.Now().Add(lease + lease/2); time.Now().Before(until); {
			if _, err := s.TryLock(t.Context(), sqllock.ID(2)); !errors.Is(err, sqllock.ErrUnavailable) {
				t.Fatalf("TryLock of the blocked key: %v, want ErrUnavailable", err)
			}
			if err := lock.Err(); err != nil {
				t.Fatalf("the other lock: %v", err)
			}
		}
		if err := stuck.Rollback(); err != nil {
			t.Fatal(err)
		}
		lockertest.Eventually(t, "the key is free", func() bool {
			lock, err := s.TryLock(t.Context(), sqllock.ID(2))
			return err == nil && lock.Unlock() == nil
		})
		if err := lock.Unlock(); err != nil {
			t.Errorf("Unlock of the other lock: %v", err)
		}
	})
}
