package fleet_test

import (
	"errors"
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

func TestLongProcessEnds(t *testing.T) {
	f := start(t)
	must(t, f.Members[1].Process.Kill())
	if err := f.Serving(t.Context(), time.Minute); !errors.Is(err, fleet.ErrProcessEnded) {
		t.Errorf("%v, want ErrProcessEnded", err)
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
