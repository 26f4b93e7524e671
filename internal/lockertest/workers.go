package lockertest

import (
	"cmp"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/latchkey-go/latchkey/internal/subprocess"
	"github.com/latchkey-go/latchkey/sqllock"
)

// workerRole is the role in which tests with several processes start their test
// binary again.
const workerRole = "worker"

// Orders tell a worker what to do.
type Orders struct {
	Driver, DSN string
	LeaseTable  bool          // sqllock.WithLeaseTable
	Lease       time.Duration // sqllock.WithLease; 0 is the default
	Locks       int           // how many it holds until it ends; if 0, its callers contend
	Rounds      int           // grants for each of the callers
	Callers     int           // 0 is 64
	Inside      string        // the file that exists while a caller is inside
}

// Options returns the options of the worker's Session.
func (o Orders) Options() (opts []sqllock.Option) {
	if o.LeaseTable {
		opts = append(opts, sqllock.WithLeaseTable())
	}
	if o.Lease > 0 {
		opts = append(opts, sqllock.WithLease(o.Lease))
	}
	return opts
}

// start starts this test binary again with orders, until the end of the test.
func start(t *testing.T, o Orders) *subprocess.Process {
	t.Helper()
	p, err := subprocess.Start(workerRole, o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		p.Ask()
		_ = p.Wait()
	})
	return p
}

// StartHolder starts a process that holds WorkerKey(0) to WorkerKey(o.Locks-1)
// until it ends. StartHolder returns when the process holds them.
func StartHolder(t *testing.T, o Orders) *subprocess.Process {
	t.Helper()
	p := start(t, o)
	if line, err := p.ReadLine(); err != nil {
		t.Fatalf("the holder said %q: %v", line, err)
	}
	return p
}

// Worker carries out the orders of StartHolder and Processes, and does not
// return then. In a process without orders it does nothing. A TestMain begins
// with it.
func Worker() { subprocess.Main(workerRole, carryOut) }

// carryOut carries out o until that is done or ctx ends.
func carryOut(ctx context.Context, o Orders) error {
	db, err := sql.Open(o.Driver, o.DSN)
	if err != nil {
		return err
	}
	s, err := sqllock.Open(context.Background(), db, o.Options()...)
	if err != nil {
		return err
	}
	if o.Locks > 0 {
		return hold(ctx, s, o.Locks)
	}
	if err := contend(s, o); err != nil {
		return err
	}
	return s.Close()
}

// WorkerKey returns the i-th key of the tests with several processes.
func WorkerKey(i int) sqllock.Key { return sqllock.ID(int64(7000 + i)) }

// hold acquires n locks, prints a line, and keeps them until ctx ends. It
// releases none: their connection ends with the process.
func hold(ctx context.Context, s *sqllock.Session, n int) error {
	for i := range n {
		if _, err := s.TryLock(context.Background(), WorkerKey(i)); err != nil {
			return err
		}
	}
	fmt.Println("holding")
	<-ctx.Done()
	return nil
}

// contend makes many goroutines contend for one key.
func contend(s *sqllock.Session, o Orders) error {
	failed := make(chan error, o.Callers)
	for i := range o.Callers {
		go func() { failed <- contender(s, o, i) }()
	}
	var err error
	for range o.Callers {
		err = errors.Join(err, <-failed)
	}
	return err
}

// contender is granted the key as often as o says. While it holds the key it
// has made a file that no other caller of any process can make.
func contender(s *sqllock.Session, o Orders, i int) error {
	for grants := 0; grants < o.Rounds; {
		take := s.TryLock
		if i%2 == 0 {
			take = s.Lock
		}
		lock, err := take(context.Background(), WorkerKey(0))
		if errors.Is(err, sqllock.ErrHeld) {
			time.Sleep(time.Duration(i) * 100 * time.Microsecond) // a client's pause
			continue
		}
		if err != nil {
			return err
		}
		grants++
		inside, err := os.OpenFile(o.Inside, os.O_CREATE|os.O_EXCL, 0o600)
		if err != nil {
			return fmt.Errorf("two callers hold one key: %w", err)
		}
		if err := errors.Join(inside.Close(), os.Remove(o.Inside), lock.Unlock()); err != nil {
			return err
		}
	}
	return nil
}

// Processes starts a process for each of orders. They contend for one key, and
// each of their callers is granted it as often as the orders say. It checks that
// two callers are never inside at once.
func Processes(t *testing.T, orders ...Orders) {
	t.Helper()
	inside := filepath.Join(t.TempDir(), "inside")
	var workers []*subprocess.Process
	for _, o := range orders {
		o.Inside, o.Callers = inside, cmp.Or(o.Callers, 64)
		workers = append(workers, start(t, o))
	}
	for i, worker := range workers {
		if err := worker.Wait(); err != nil {
			t.Errorf("worker %d: %v", i, err)
		}
	}
}
