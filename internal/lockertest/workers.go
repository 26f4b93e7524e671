package lockertest

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io"
	"net"
	"sync"
	"sync/atomic"
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
	Job         string // "hold" or "contend"
	Driver, DSN string
	LeaseTable  bool          // sqllock.WithLeaseTable
	Lease       time.Duration // sqllock.WithLease; 0 is the default
	Counter     string        // contend: where to report
	Rounds      int           // contend: grants for each of 64 callers, or of Callers
	Callers     int           // contend; 0 is 64
	Locks       int           // hold: how many
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

// StartWorker starts this test binary again with orders, until the end of the
// test.
func StartWorker(t *testing.T, o Orders) *subprocess.Process {
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

// StartHolder starts a worker that holds WorkerKey(0) to WorkerKey(n-1) until it
// ends. StartHolder returns when the worker holds them.
func StartHolder(t *testing.T, o Orders) *subprocess.Process {
	t.Helper()
	o.Job = "hold"
	p := StartWorker(t, o)
	if line, err := p.ReadLine(); err != nil {
		t.Fatalf("worker said %q: %v", line, err)
	}
	return p
}

// Worker carries out the orders of StartWorker, and does not return then. In a
// process without orders it does nothing. A TestMain begins with it.
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
	if o.Job == "hold" {
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

// contend makes many goroutines contend for one key. Each holder reports to the
// counter.
func contend(s *sqllock.Session, o Orders) error {
	if o.Callers == 0 {
		o.Callers = 64
	}
	var wg sync.WaitGroup
	failed := make(chan error, o.Callers)
	for i := range o.Callers {
		wg.Go(func() {
			if err := contender(s, o, i); err != nil {
				failed <- err
			}
		})
	}
	wg.Wait()
	close(failed)
	return <-failed
}

func contender(s *sqllock.Session, o Orders, i int) error {
	counter, err := net.Dial("tcp", o.Counter) //nolint:noctx // loopback
	if err != nil {
		return err
	}
	defer counter.Close()
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
		for _, report := range []byte{'+', '-'} {
			if _, err := counter.Write([]byte{report}); err != nil {
				return err
			}
			if _, err := io.ReadFull(counter, make([]byte, 1)); err != nil {
				return err
			}
		}
		if err := lock.Unlock(); err != nil {
			return err
		}
	}
	return nil
}

// A counter counts the holders that report to be inside. It knows nothing of
// locks. A holder goes on only when the counter has confirmed its report.
type counter struct {
	listener net.Listener
	inside   atomic.Int32
	overlaps atomic.Int32
	entries  atomic.Int32
}

func newCounter(t *testing.T) *counter {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0") //nolint:noctx // loopback
	if err != nil {
		t.Fatal(err)
	}
	c := &counter{listener: listener}
	var wg sync.WaitGroup
	wg.Go(func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			wg.Go(func() { c.listen(conn) })
		}
	})
	t.Cleanup(func() {
		_ = listener.Close()
		wg.Wait()
	})
	return c
}

func (c *counter) listen(conn net.Conn) {
	defer conn.Close()
	report := make([]byte, 1)
	for {
		if _, err := io.ReadFull(conn, report); err != nil {
			return
		}
		if report[0] == '+' {
			c.entries.Add(1)
			if c.inside.Add(1) > 1 {
				c.overlaps.Add(1)
			}
		} else {
			c.inside.Add(-1)
		}
		if _, err := conn.Write(report); err != nil {
			return
		}
	}
}

// Processes starts a process for each of orders. They contend for one key, with
// 64 callers in each. It checks that two callers are never inside at once.
func Processes(t *testing.T, orders ...Orders) {
	t.Helper()
	c := newCounter(t)
	var workers []*subprocess.Process
	want := 0
	for _, o := range orders {
		o.Job, o.Counter = "contend", c.listener.Addr().String()
		workers = append(workers, StartWorker(t, o))
		callers := o.Callers
		if callers == 0 {
			callers = 64
		}
		want += callers * o.Rounds
	}
	for i, worker := range workers {
		if err := worker.Wait(); err != nil {
			t.Errorf("worker %d: %v", i, err)
		}
	}
	if n := c.overlaps.Load(); n > 0 {
		t.Errorf("two callers held one key %d times", n)
	}
	if got := int(c.entries.Load()); got != want {
		t.Errorf("%d grants, want %d", got, want)
	}
	t.Logf("%d grants in %d processes, %d overlaps", c.entries.Load(), len(workers), c.overlaps.Load())
}
