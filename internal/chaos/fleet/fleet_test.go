package fleet_test

import (
	"context"
	"errors"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/latchkey-go/latchkey/internal/bound"
	"github.com/latchkey-go/latchkey/internal/chaos/fleet"
	"github.com/latchkey-go/latchkey/internal/chaos/history"
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
	f, err := fleet.Start(t.Context(), fleet.Settings{Processes: 2, Callers: 2, Mixed: 2, Keys: 3, Lease: lease, Dir: t.TempDir(), Seed: 1})
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

func TestLongProcessEnds(t *testing.T) {
	f := start(t)
	if err := f.Members[1].Process.Kill(); err != nil {
		t.Fatal(err)
	}
	if err := f.Serving(t.Context(), time.Minute); !errors.Is(err, fleet.ErrProcessEnded) {
		t.Errorf("%v, want ErrProcessEnded", err)
	}
}

func TestLongFleet(t *testing.T) {
	f := start(t)
	ctx, m := t.Context(), f.Members[0]
	if f.Members[1].Driver == m.Driver {
		t.Errorf("two processes with the driver %s", m.Driver)
	}
	pid, err := f.SessionPID(ctx, m)
	if err != nil {
		t.Fatal(err)
	}
	before, err := f.Tallies(ctx)
	if err != nil {
		t.Fatal(err)
	}
	if err := f.Exec(ctx, "SELECT pg_terminate_backend($1)", pid); err != nil {
		t.Fatal(err)
	}
	if err := f.Serving(ctx, 30*time.Second); err != nil {
		t.Fatal(err)
	}
	after, err := f.Tallies(ctx)
	if err != nil {
		t.Fatal(err)
	}
	if after[0].Connections != before[0].Connections+1 || after[1] != before[1] {
		t.Errorf("one session was terminated: before %+v, after %+v", before, after)
	}
	killed := m.Process.Config.Process
	if err := f.Kill(m); err != nil {
		t.Fatal(err)
	}
	if err := f.Serving(ctx, 30*time.Second); err != nil {
		t.Fatal(err)
	}
	if m.Process.Config.Process == killed {
		t.Errorf("process %d has taken its own place", killed)
	}
	if err := f.Restart(ctx, m); err != nil {
		t.Fatal(err)
	}
	if err := f.NoStrangeLocks(ctx, 30*time.Second); err != nil {
		t.Error(err)
	}
	// The proxy may keep the server's connection of the killed process open. Its
	// locks end with the lease then.
	if err := errors.Join(f.Rest(ctx, lease+30*time.Second), f.Drain(ctx)); err != nil {
		t.Error(err)
	}
}

// A lock that is left when the callers have ended is seen.
func TestLongRest(t *testing.T) {
	f := start(t)
	conn, err := f.DB.Conn(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if _, err := conn.ExecContext(t.Context(), "SELECT pg_advisory_lock_shared(1)"); err != nil {
		t.Fatal(err)
	}
	if err := f.Rest(t.Context(), 100*time.Millisecond); !errors.Is(err, fleet.ErrLeftBehind) {
		t.Errorf("%v, want ErrLeftBehind", err)
	}
}

// What should not be there is seen.
func TestLongStrangers(t *testing.T) {
	f := start(t)
	conn, err := f.DB.Conn(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if _, err := conn.ExecContext(t.Context(), "SELECT pg_advisory_lock(1)"); err != nil {
		t.Fatal(err)
	}
	if err := f.NoStrangeLocks(t.Context(), 50*time.Millisecond); err == nil {
		t.Error("a lock that no caller holds was not seen")
	}
	f.Services = 1
	if err := f.NoStrangeLocks(t.Context(), 30*time.Second); err != nil {
		t.Errorf("a lock that no flood has left: %v", err)
	}
	if _, err := conn.ExecContext(t.Context(), "SELECT pg_advisory_lock($1)", worker.FloodKeys()[7].Int64()); err != nil {
		t.Fatal(err)
	}
	if err := f.NoStrangeLocks(t.Context(), 50*time.Millisecond); err == nil {
		t.Error("a lock that a flood has left was not seen")
	}
	// A process that does not serve is named.
	m := f.Members[1]
	if err := m.Process.Freeze(); err != nil {
		t.Fatal(err)
	}
	err = f.Serving(t.Context(), 200*time.Millisecond)
	if err == nil || !strings.Contains(err.Error(), "process 2 ") {
		t.Errorf("a frozen process: %v", err)
	}
	short, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	if _, err := f.Tally(short, m, history.Now()); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("the figures of a frozen process: %v", err)
	}
}
