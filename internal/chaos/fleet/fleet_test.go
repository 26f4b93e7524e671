package fleet_test

import (
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/latchkey-go/latchkey/internal/bound"
	"github.com/latchkey-go/latchkey/internal/chaos/fleet"
	"github.com/latchkey-go/latchkey/internal/chaos/worker"
	"github.com/latchkey-go/latchkey/internal/leaktest"
)

func TestMain(m *testing.M) {
	bound.Lengthen() // of the workers, too: a fleet whose machine is busy keeps its Sessions
	worker.Main()
	os.Exit(leaktest.Check(m.Run()))
}

// lease is so long that a busy machine loses no Session.
const lease = time.Minute

func start(t *testing.T) *fleet.Fleet {
	t.Helper()
	f, err := fleet.Start(t.Context(), fleet.Settings{Store: fleet.Postgres, Processes: 2, Callers: 2, Mixed: 2, Keys: 3, Lease: lease, Dir: t.TempDir(), Seed: 1})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := f.Close(); err != nil {
			t.Error(err)
		}
	})
	return f
}

func must(t *testing.T, errs ...error) {
	t.Helper()
	if err := errors.Join(errs...); err != nil {
		t.Fatal(err)
	}
}

// In a fleet of two versions, a process that was killed comes back as it was, and
// one that was restarted is of the other version. The older one makes the tables.
func TestLongTwoVersions(t *testing.T) {
	program, err := os.Executable()
	must(t, err)
	f, err := fleet.Start(t.Context(), fleet.Settings{
		Store: fleet.SQLite, Processes: 2, Callers: 2, Lease: lease, Dir: t.TempDir(), Seed: 1, Old: program,
		Keys: 64, // what a process that was killed has held is not free again
	})
	must(t, err)
	defer func() { must(t, f.Close()) }()
	runsOld := func(want ...bool) {
		t.Helper()
		for i, m := range f.Members {
			if old := m.Process.Config.Program == program; old != want[i] || m.Old != old {
				t.Errorf("member %d runs the older version: %t, and %t is noted; want %t", m.Number, old, m.Old, want[i])
			}
		}
	}
	runsOld(true, false)
	must(t, f.Kill(f.Members[0]))
	must(t, f.Kill(f.Members[1]))
	runsOld(true, false)
	must(t, f.Serving(t.Context(), time.Minute))
	must(t, f.Restart(t.Context(), f.Members[0]), f.Restart(t.Context(), f.Members[1]))
	runsOld(false, true)
}

func TestLongProcessEnds(t *testing.T) {
	f := start(t)
	must(t, f.Members[1].Process.Kill())
	if err := f.Serving(t.Context(), time.Minute); !errors.Is(err, fleet.ErrProcessEnded) {
		t.Errorf("%v, want ErrProcessEnded", err)
	}
}

// A Session that has served is waited for. The row of one that was never open is
// not.
func TestLongReleased(t *testing.T) {
	const pid = 1 << 30 // of no process
	for store, row := range map[fleet.Store]string{
		fleet.SQLite:        "(id, expires, statement, holder) VALUES (%d, 9e15, %d, 'host/%d')",
		fleet.MariaDBLeases: "(id, expires, counts_from, statement, holder) VALUES (%d, 9e15, 0, %d, 'host/%d')",
		fleet.Leases:        "(id, expires, statement, holder) VALUES (%d, 'infinity', %d, 'host/%d')",
	} {
		t.Run(string(store), func(t *testing.T) {
			f, err := fleet.Start(t.Context(), fleet.Settings{Store: store, Lease: lease, Dir: t.TempDir(), Seed: 1})
			must(t, err)
			defer func() { must(t, f.Close()) }()
			has := func(id, statement int) {
				t.Helper()
				_, err := f.LockDB.ExecContext(t.Context(), fmt.Sprintf("INSERT INTO latchkey_sessions "+row, id, statement, pid))
				must(t, err)
			}
			has(1, 0)
			must(t, f.Released(t.Context(), pid, time.Minute))
			has(2, 1)
			if err := f.Released(t.Context(), pid, time.Second); !errors.Is(err, fleet.ErrTimeout) {
				t.Errorf("while a Session that has served is there: %v", err)
			}
		})
	}
}

// What should not be there is seen.
func TestLongStrangers(t *testing.T) {
	f := start(t)
	conn, err := f.DB.Conn(t.Context())
	must(t, err)
	defer conn.Close()
	var pid int
	must(t, conn.QueryRowContext(t.Context(), "SELECT pg_backend_pid() FROM pg_advisory_lock_shared(1)").Scan(&pid))
	if err := f.Released(t.Context(), pid, time.Second); !errors.Is(err, fleet.ErrTimeout) {
		t.Errorf("while there is a lock: %v", err)
	}
	// A process that does not serve is named.
	m := f.Members[1]
	must(t, m.Process.Freeze())
	if err := f.Serving(t.Context(), 200*time.Millisecond); err == nil || !strings.Contains(err.Error(), "process 2,") {
		t.Errorf("a frozen process: %v", err)
	}
	must(t, m.Process.Thaw())
	if err := f.Rest(t.Context(), 100*time.Millisecond); !errors.Is(err, fleet.ErrLeftBehind) {
		t.Errorf("%v, want ErrLeftBehind", err)
	}
}
