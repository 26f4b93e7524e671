package sqllock_test

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lib/pq"

	"github.com/latchkey-go/latchkey/sqllock"
)

// A fakeServer is a driver for virtual time. It grants every key, unless before
// returns an error for a statement or for "BEGIN".
type fakeServer struct {
	before func(query string) error
	closed atomic.Bool
}

func (s *fakeServer) Connect(context.Context) (driver.Conn, error) { return fakeConn{s}, nil }
func (s *fakeServer) Driver() driver.Driver                        { return nil }

// A fakeConn is a connection, and the transaction on it.
type fakeConn struct{ *fakeServer }

func (c fakeConn) Prepare(string) (driver.Stmt, error) { return nil, driver.ErrSkip }
func (c fakeConn) Begin() (driver.Tx, error)           { return nil, driver.ErrSkip }
func (c fakeConn) Close() error                        { c.closed.Store(true); return nil }
func (c fakeConn) Commit() error                       { return nil }
func (c fakeConn) Rollback() error                     { return c.before("ROLLBACK") }

func (c fakeConn) BeginTx(context.Context, driver.TxOptions) (driver.Tx, error) {
	return c, c.before("BEGIN")
}

func (c fakeConn) ExecContext(_ context.Context, query string, _ []driver.NamedValue) (driver.Result, error) {
	return driver.RowsAffected(1), c.before(query)
}

// onFakeConn returns a ConnLocker on a connection to server.
func onFakeConn(t *testing.T, server *fakeServer) (*sqllock.ConnLocker, *sql.Conn) {
	t.Helper()
	db := sql.OpenDB(server)
	t.Cleanup(func() { _ = db.Close() })
	conn, err := db.Conn(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return sqllock.OnConn(conn), conn
}

// A call of a ConnLocker that has no response returns within a second: TryLock,
// Unlock, and a Lock whose context ends, which first waits for its statement. The
// connection is then in doubt. It is destroyed with all its locks.
func TestConnWithoutResponse(t *testing.T) {
	const limit = 900 * time.Millisecond
	for name, call := range map[string]func(l *sqllock.ConnLocker, held *sqllock.Lock) error{
		"TryLock": func(l *sqllock.ConnLocker, _ *sqllock.Lock) error {
			_, err := l.TryLock(context.Background(), sqllock.ID(2))
			return err
		},
		"Unlock": func(_ *sqllock.ConnLocker, held *sqllock.Lock) error { return held.Unlock() },
		"RLock": func(l *sqllock.ConnLocker, _ *sqllock.Lock) error {
			ctx, cancel := context.WithCancel(context.Background())
			time.AfterFunc(1, cancel)
			_, err := l.RLock(ctx, sqllock.ID(2))
			return err
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var stuck atomic.Bool
				gate := make(chan struct{})
				server := &fakeServer{before: func(string) error {
					if stuck.Load() {
						<-gate
					}
					return nil
				}}
				locks, _ := onFakeConn(t, server)
				held, other := mustLock(t, locks, sqllock.ID(1)), mustLock(t, locks, sqllock.ID(3))
				stuck.Store(true)
				began := time.Now()
				err := call(locks, held)
				if want := map[bool]error{true: context.Canceled, false: sqllock.ErrUnavailable}[name == "RLock"]; !errors.Is(err, want) {
					t.Errorf("without a response: %v, want %v", err, want)
				}
				if took := time.Since(began); took < limit || took > limit+1 {
					t.Errorf("it took %v, want %v", took, limit)
				}
				close(gate)
				synctest.Wait()
				if err := other.Err(); err != sqllock.ErrLost || !server.closed.Load() {
					t.Errorf("Err of a lock on a connection in doubt: %v, want ErrLost; it is closed: %t", err, server.closed.Load())
				}
				if _, err := locks.TryLock(t.Context(), sqllock.ID(4)); !errors.Is(err, sqllock.ErrClosed) {
					t.Errorf("a later call: %v, want ErrClosed", err)
				}
			})
		})
	}
}

// While a lock cannot be released, as the owner's transaction has failed, the
// locker tries that once in a while: not one statement after the other, and not
// once for each call that came meanwhile. A caller that waits gets the key then.
func TestConnDoesNotInsist(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var releases atomic.Int64
		var mended atomic.Bool
		locks, conn := onFakeConn(t, &fakeServer{before: func(query string) error {
			if strings.Contains(query, "pg_advisory_unlock") && !mended.Load() {
				releases.Add(1)
				return &pq.Error{Severity: "ERROR", Code: "25P02", Message: "current transaction is aborted"}
			}
			return nil
		}})
		lock := mustLock(t, locks, sqllock.ID(1))
		if err := lock.Unlock(); !errors.Is(err, sqllock.ErrUnavailable) {
			t.Errorf("Unlock in a failed transaction: %v, want ErrUnavailable", err)
		}
		ended, cancel := context.WithCancel(t.Context())
		cancel()
		for range 50 {
			_, _ = locks.TryLock(ended, sqllock.ID(2)) // it has a release tried again
			time.Sleep(time.Millisecond)
		}
		before := releases.Load()
		time.Sleep(10 * time.Second)
		// A try is two statements, and there are four in a second.
		if n := releases.Load() - before; n == 0 || n > 2*4*10+2 {
			t.Errorf("%d statements to release one lock in ten seconds without calls", n)
		}
		mended.Store(true)
		next, err := locks.Lock(t.Context(), sqllock.ID(1))
		if err != nil {
			t.Errorf("Lock after the end of the transaction: %v", err)
		}
		unlock(t, next)
		if err := conn.Close(); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Second) // the locker notices it at its next try
	})
}

// An attempt of a TxLocker that takes too long, or whose connection is gone, is
// an outage, and the next one may succeed. It is not the end of a closed locker.
func TestPerTxFailedAttempt(t *testing.T) {
	tooLong := func() error { time.Sleep(time.Minute); return nil } // in a driver that ignores its context
	gone := func() error { return sql.ErrConnDone }
	for name, fail := range map[string]func() error{"takes too long": tooLong, "gone": gone} {
		for _, first := range []string{"BEGIN", "SELECT"} {
			t.Run(first+" "+name, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					var failed atomic.Bool
					db := sql.OpenDB(&fakeServer{before: func(query string) error {
						if strings.HasPrefix(query, first) && failed.CompareAndSwap(false, true) {
							return fail()
						}
						return nil
					}})
					defer db.Close()
					locks := sqllock.PerTx(db)
					if _, err := locks.TryLock(t.Context(), sqllock.ID(1)); !errors.Is(err, sqllock.ErrUnavailable) || errors.Is(err, sqllock.ErrClosed) {
						t.Errorf("TryLock: %v, want ErrUnavailable", err)
					}
					lock, err := locks.Lock(t.Context(), sqllock.ID(1))
					if err != nil {
						t.Errorf("Lock: %v", err)
					}
					unlock(t, lock)
				})
			})
		}
	}
}

// An Unlock of a lock of PerTx whose rollback has no response returns within a
// second. The key stays reserved until the rollback ends.
func TestPerTxUnlockWithoutResponse(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		gate := make(chan struct{})
		db := sql.OpenDB(&fakeServer{before: func(query string) error {
			if query == "ROLLBACK" {
				<-gate
			}
			return nil
		}})
		defer db.Close()
		locks := sqllock.PerTx(db)
		lock := mustLock(t, locks, sqllock.ID(1))
		time.Sleep(time.Hour)
		began := time.Now()
		if err := lock.Unlock(); !errors.Is(err, sqllock.ErrUnavailable) {
			t.Errorf("Unlock: %v, want ErrUnavailable", err)
		}
		if took := time.Since(began); took != 900*time.Millisecond {
			t.Errorf("it took %v", took)
		}
		if _, err := locks.TryLock(t.Context(), sqllock.ID(1)); !errors.Is(err, sqllock.ErrHeld) && !errors.Is(err, sqllock.ErrUnavailable) {
			t.Errorf("TryLock while the rollback is under way: %v", err)
		}
		close(gate)
		synctest.Wait()
		unlock(t, mustLock(t, locks, sqllock.ID(1)))
	})
}
