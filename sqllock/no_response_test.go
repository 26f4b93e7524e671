package sqllock_test

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/latchkey-go/latchkey/sqllock"
)

// A stuckServer is a driver of one connection whose statements succeed, and take
// until gate is closed. Each statement reports one row.
type stuckServer struct {
	mu     sync.Mutex    // protects what follows
	gate   chan struct{} // nil: a statement takes no time
	closed bool
}

func (s *stuckServer) Connect(context.Context) (driver.Conn, error) { return s, nil }
func (s *stuckServer) Driver() driver.Driver                        { return s }
func (s *stuckServer) Open(string) (driver.Conn, error)             { return s, nil }
func (s *stuckServer) Begin() (driver.Tx, error)                    { return nil, driver.ErrSkip }
func (s *stuckServer) Prepare(string) (driver.Stmt, error)          { return nil, driver.ErrSkip }

func (s *stuckServer) Close() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.closed = true
	return nil
}

func (s *stuckServer) ExecContext(context.Context, string, []driver.NamedValue) (driver.Result, error) {
	s.mu.Lock()
	gate := s.gate
	s.mu.Unlock()
	if gate != nil {
		<-gate
	}
	return driver.RowsAffected(1), nil
}

// A call of a ConnLocker that has no response returns within a second: TryLock,
// Unlock, and a Lock whose context ends, which first waits for its statement. The
// connection is then in doubt. It is destroyed with all its locks.
func TestConnWithoutResponse(t *testing.T) {
	const limit = 900 * time.Millisecond
	for name, call := range map[string]func(l sqllock.Locker, held *sqllock.Lock) error{
		"TryLock": func(l sqllock.Locker, _ *sqllock.Lock) error {
			_, err := l.TryLock(context.Background(), sqllock.ID(2))
			return err
		},
		"Unlock": func(_ sqllock.Locker, held *sqllock.Lock) error { return held.Unlock() },
		"RLock": func(l sqllock.Locker, _ *sqllock.Lock) error {
			ctx, cancel := context.WithCancel(context.Background())
			time.AfterFunc(1, cancel)
			_, err := l.(*sqllock.ConnLocker).RLock(ctx, sqllock.ID(2))
			return err
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				server := new(stuckServer)
				db := sql.OpenDB(server)
				defer db.Close()
				conn, err := db.Conn(t.Context())
				if err != nil {
					t.Fatal(err)
				}
				locks := sqllock.OnConn(conn)
				held, other := mustLock(t, locks, sqllock.ID(1)), mustLock(t, locks, sqllock.ID(3))
				gate := make(chan struct{})
				server.mu.Lock()
				server.gate = gate
				server.mu.Unlock()
				began := time.Now()
				err = call(locks, held)
				if want := map[bool]error{true: context.Canceled, false: sqllock.ErrUnavailable}[name == "RLock"]; !errors.Is(err, want) {
					t.Errorf("without a response: %v, want %v", err, want)
				}
				if took := time.Since(began); took < limit || took > limit+1 {
					t.Errorf("it took %v, want %v", took, limit)
				}
				close(gate)
				synctest.Wait()
				if err := other.Err(); err != sqllock.ErrLost {
					t.Errorf("Err of a lock on a connection in doubt: %v, want ErrLost", err)
				}
				if _, err := locks.TryLock(t.Context(), sqllock.ID(4)); !errors.Is(err, sqllock.ErrClosed) {
					t.Errorf("a later call: %v, want ErrClosed", err)
				}
				server.mu.Lock()
				defer server.mu.Unlock()
				if !server.closed {
					t.Error("the connection is not closed")
				}
			})
		})
	}
}

// A stuckTx is a transaction whose rollback takes until gate is closed.
type stuckTx struct{ gate chan struct{} }

func (stuckTx) ExecContext(context.Context, string, ...any) (sql.Result, error) {
	return driver.RowsAffected(1), nil
}
func (tx stuckTx) Rollback() error { <-tx.gate; return nil }
func (tx stuckTx) Commit() error   { return nil }

// An Unlock of a lock of PerTx whose rollback has no response returns within a
// second. The key stays reserved until the rollback ends.
func TestPerTxUnlockWithoutResponse(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		gate := make(chan struct{})
		locks := sqllock.PerTxFunc(func(context.Context) (sqllock.Tx, error) { return stuckTx{gate}, nil })
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
