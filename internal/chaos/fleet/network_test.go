package fleet_test

import (
	"errors"
	"testing"
	"time"

	"github.com/latchkey-go/latchkey/internal/chaos/fleet"
)

// A round trip feels what is done to the network of its member.
func TestLongRoundTrip(t *testing.T) {
	f := start(t)
	const late = 300 * time.Millisecond
	fault, err := f.Members[0].Proxy.Latency(late, 0)
	if err != nil {
		t.Fatal(err)
	}
	took, err := f.RoundTrip(t.Context(), f.Members[0])
	if err != nil || took < late {
		t.Errorf("a round trip took %v, %v", took, err)
	}
	if err := fault.Mend(); err != nil {
		t.Error(err)
	}
}

// Locks of a server's process are seen until they go.
func TestLongReleased(t *testing.T) {
	f := start(t)
	conn, err := f.DB.Conn(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	var pid int
	if err := conn.QueryRowContext(t.Context(), "SELECT pg_backend_pid() FROM pg_advisory_lock(1)").Scan(&pid); err != nil {
		t.Fatal(err)
	}
	if err := f.Released(t.Context(), pid, time.Second); !errors.Is(err, fleet.ErrTimeout) {
		t.Errorf("while there is a lock: %v", err)
	}
	ready := false
	if err := f.ExecAfter(t.Context(), func() { ready = true }, "SELECT pg_terminate_backend($1)", pid); err != nil || !ready {
		t.Errorf("ready %t, %v", ready, err)
	}
	if err := f.Released(t.Context(), pid, 30*time.Second); err != nil {
		t.Error(err)
	}
}
