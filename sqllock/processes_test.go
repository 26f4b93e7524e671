package sqllock_test

import (
	"bufio"
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/latchkey-go/latchkey/internal/pgtest"
	"github.com/latchkey-go/latchkey/sqllock"
)

// Tests of several processes start this test binary again as a worker, which
// gets its orders in an environment variable and ends when its stdin does.
const workerEnv = "LATCHKEY_TEST_WORKER"

type orders struct {
	Job         string // "hold" or "contend"
	Driver, DSN string
	Arbiter     string // contend: where to report
	Rounds      int    // contend: grants for each goroutine
	Locks       int    // hold: how many
}

func startWorker(t *testing.T, o orders) (*exec.Cmd, *bufio.Reader) {
	t.Helper()
	text, err := json.Marshal(o)
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), workerEnv+"="+string(text))
	cmd.Stderr = os.Stderr
	stdin, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = stdin.Close()
		_ = cmd.Wait()
	})
	return cmd, bufio.NewReader(stdout)
}

func runWorker(text string) int {
	var o orders
	if err := json.Unmarshal([]byte(text), &o); err != nil {
		return fail(err)
	}
	go func() { // die with the parent
		_, _ = io.Copy(io.Discard, os.Stdin)
		os.Exit(0)
	}()
	db, err := sql.Open(o.Driver, o.DSN)
	if err != nil {
		return fail(err)
	}
	s, err := sqllock.Open(context.Background(), db)
	if err != nil {
		return fail(err)
	}
	if o.Job == "hold" {
		err = hold(s, o.Locks)
	} else {
		err = contend(s, o)
	}
	if err != nil {
		return fail(err)
	}
	return 0
}

func fail(err error) int {
	fmt.Fprintln(os.Stderr, "worker:", err)
	return 1
}

// workerKey is the i-th key of the tests with several processes.
func workerKey(i int) sqllock.Key { return sqllock.ID(int64(7000 + i)) }

// hold takes n locks, says so, and never lets go.
func hold(s *sqllock.Session, n int) error {
	for i := range n {
		if _, err := s.TryLock(context.Background(), workerKey(i)); err != nil {
			return err
		}
	}
	fmt.Println("holding")
	select {}
}

// contend has 64 goroutines take one key, and tells the arbiter each time.
func contend(s *sqllock.Session, o orders) error {
	var wg sync.WaitGroup
	failed := make(chan error, 64)
	for i := range 64 {
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

func contender(s *sqllock.Session, o orders, i int) error {
	arbiter, err := net.Dial("tcp", o.Arbiter)
	if err != nil {
		return err
	}
	defer arbiter.Close()
	for grants := 0; grants < o.Rounds; {
		take := s.TryLock
		if i%2 == 0 {
			take = s.Lock
		}
		lock, err := take(context.Background(), workerKey(0))
		if errors.Is(err, sqllock.ErrHeld) {
			time.Sleep(time.Duration(i) * 100 * time.Microsecond) // a client's pause
			continue
		}
		if err != nil {
			return err
		}
		grants++
		for _, report := range []byte{'+', '-'} {
			if _, err := arbiter.Write([]byte{report}); err != nil {
				return err
			}
			if _, err := io.ReadFull(arbiter, make([]byte, 1)); err != nil {
				return err
			}
		}
		if err := lock.Unlock(); err != nil {
			return err
		}
	}
	return nil
}

// An arbiter counts who says to be inside. It knows nothing of locks: a holder
// goes on only when it has confirmed.
type arbiter struct {
	listener net.Listener
	inside   atomic.Int32
	overlaps atomic.Int32
	entries  atomic.Int32
}

func newArbiter(t *testing.T) *arbiter {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	a := &arbiter{listener: listener}
	var wg sync.WaitGroup
	wg.Go(func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			wg.Go(func() { a.listen(conn) })
		}
	})
	t.Cleanup(func() {
		_ = listener.Close()
		wg.Wait()
	})
	return a
}

func (a *arbiter) listen(conn net.Conn) {
	defer conn.Close()
	report := make([]byte, 1)
	for {
		if _, err := io.ReadFull(conn, report); err != nil {
			return
		}
		if report[0] == '+' {
			a.entries.Add(1)
			if a.inside.Add(1) > 1 {
				a.overlaps.Add(1)
			}
		} else {
			a.inside.Add(-1)
		}
		if _, err := conn.Write(report); err != nil {
			return
		}
	}
}

func TestTwoProcessesOneKey(t *testing.T) {
	t.Parallel()
	const rounds = 20
	dsn := pgtest.Database(t)
	a := newArbiter(t)
	var workers []*exec.Cmd
	for _, driver := range pgtest.Drivers() {
		cmd, _ := startWorker(t, orders{Job: "contend", Driver: driver, DSN: dsn, Arbiter: a.listener.Addr().String(), Rounds: rounds})
		workers = append(workers, cmd)
	}
	for i, cmd := range workers {
		if err := cmd.Wait(); err != nil {
			t.Errorf("worker %d: %v", i, err)
		}
	}
	if n := a.overlaps.Load(); n > 0 {
		t.Errorf("%d times two held one key", n)
	}
	if got, want := a.entries.Load(), int32(len(workers)*64*rounds); got != want {
		t.Errorf("%d grants, want %d", got, want)
	}
	t.Logf("%d grants in 2 processes of 64 goroutines, %d overlaps", a.entries.Load(), a.overlaps.Load())
}

func TestKilledHolder(t *testing.T) {
	eachDriver(t, func(t *testing.T, driver, dsn string) {
		const n = 100
		s := session(t, driver, dsn)
		cmd, out := startWorker(t, orders{Job: "hold", Driver: driver, DSN: dsn, Locks: n})
		if line, err := out.ReadString('\n'); err != nil {
			t.Fatalf("worker said %q: %v", line, err)
		}
		for i := range n {
			if _, err := s.TryLock(t.Context(), workerKey(i)); !errors.Is(err, sqllock.ErrHeld) {
				t.Fatalf("TryLock of a key that another process holds: %v", err)
			}
		}
		killed := time.Now()
		if err := cmd.Process.Kill(); err != nil {
			t.Fatal(err)
		}
		for i := range n {
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			lock, err := s.Lock(ctx, workerKey(i))
			cancel()
			if err != nil {
				t.Fatalf("a killed process's lock is not free within a second: %v", err)
			}
			defer lock.Unlock()
		}
		t.Logf("%d locks of a killed process taken over after %v", n, time.Since(killed).Round(time.Millisecond))
	})
}
