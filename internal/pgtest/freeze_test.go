package pgtest

import (
	"context"
	"os"
	"testing"
	"time"
)

// asking starts a query on a session that is open already. The returned channel
// gets the query's error.
func asking(t *testing.T, dsn string) (begin func() <-chan error, pid int) {
	t.Helper()
	conn, err := open(t, "pgx", dsn).Conn(t.Context())
	must(t, err)
	t.Cleanup(func() { conn.Close() })
	must(t, conn.QueryRowContext(t.Context(), "SELECT pg_backend_pid()").Scan(&pid))
	return func() <-chan error {
		ended := make(chan error, 1)
		go func() {
			_, err := conn.ExecContext(context.WithoutCancel(t.Context()), "SELECT 1")
			ended <- err
		}()
		return ended
	}, pid
}

// quiet is how long a frozen server must stay silent. A server that is not
// frozen responds within a millisecond.
const quiet = 200 * time.Millisecond

func silent(t *testing.T, ended <-chan error) {
	t.Helper()
	select {
	case err := <-ended:
		t.Fatalf("a frozen server responded: %v", err)
	case <-time.After(quiet):
	}
}

func responds(t *testing.T, ended <-chan error) {
	t.Helper()
	select {
	case err := <-ended:
		must(t, err)
	case <-time.After(startTimeout):
		t.Fatal("no response after the thaw")
	}
}

func TestLongFreeze(t *testing.T) {
	t.Parallel()
	c := New(t)
	begin, _ := asking(t, c.DSN(""))
	must(t, c.Freeze())
	ended := begin()
	silent(t, ended)
	// The postmaster is frozen too, so no session can begin.
	ctx, cancel := context.WithTimeout(t.Context(), quiet)
	defer cancel()
	if execute(ctx, c.DSN(""), "SELECT 1") == nil {
		t.Error("a frozen server takes connections")
	}
	must(t, c.Thaw())
	responds(t, ended)
	do(t, c.DSN(""), "SELECT 1")
}

func TestLongFreezeBackend(t *testing.T) {
	t.Parallel()
	c := New(t)
	begin, pid := asking(t, c.DSN(""))
	must(t, c.FreezeBackend(pid))
	ended := begin()
	silent(t, ended)
	do(t, c.DSN(""), "SELECT 1") // the others live on
	must(t, c.ThawBackend(pid))
	responds(t, ended)
}

func TestLongKillBackend(t *testing.T) {
	t.Parallel()
	c := New(t)
	begin, pid := asking(t, c.DSN(""))
	must(t, c.KillBackend(pid))
	if err := <-begin(); err == nil {
		t.Error("a killed backend responded")
	}
	// PostgreSQL recovers automatically.
	must(t, poll(startTimeout, "recovery", func() (bool, error) {
		return execute(t.Context(), c.DSN(""), "SELECT 1") == nil, nil
	}))
}

func TestLongCloseWithFrozenBackend(t *testing.T) {
	t.Parallel()
	c := New(t)
	_, pid := asking(t, c.DSN(""))
	must(t, c.FreezeBackend(pid))
	begin := time.Now()
	must(t, c.Close())
	t.Logf("Close took %v", time.Since(begin))
}

// Signals reach only backends of the cluster itself.
func TestLongSignalStranger(t *testing.T) {
	t.Parallel()
	c, other := New(t), New(t)
	_, backendOfOther := asking(t, other.DSN(""))
	for name, pid := range map[string]int{
		"this process":        os.Getpid(),
		"its own postmaster":  c.server.pid,
		"another's backend":   backendOfOther,
		"every process":       -1,
		"this process' group": 0,
	} {
		for call, f := range map[string]func(int) error{
			"FreezeBackend": c.FreezeBackend,
			"ThawBackend":   c.ThawBackend,
			"KillBackend":   c.KillBackend,
		} {
			if f(pid) == nil {
				t.Errorf("%s of %s: no error", call, name)
			}
		}
	}
}
