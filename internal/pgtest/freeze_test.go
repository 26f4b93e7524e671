package pgtest

import (
	"os"
	"testing"
)

// backend returns the PID of a server process, whose session the end of the test
// closes.
func backend(t *testing.T, dsn string) (pid int) {
	t.Helper()
	conn, err := open(t, "pgx", dsn).Conn(t.Context())
	must(t, err)
	t.Cleanup(func() { conn.Close() })
	must(t, conn.QueryRowContext(t.Context(), "SELECT pg_backend_pid()").Scan(&pid))
	return pid
}

func TestLongCloseWithFrozenBackend(t *testing.T) {
	t.Parallel()
	c := New(t)
	must(t, c.FreezeBackend(backend(t, c.DSN(""))))
	must(t, c.Close())
}

// Signals reach only backends of the cluster itself.
func TestLongSignalStranger(t *testing.T) {
	t.Parallel()
	c, other := New(t), New(t)
	for name, pid := range map[string]int{
		"this process":        os.Getpid(),
		"its own postmaster":  c.server.pid,
		"another's backend":   backend(t, other.DSN("")),
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
