package servers

import (
	"os"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/latchkey-go/latchkey/internal/pgtest"
)

// A Redis is closed once, and its process has ended then.
func TestRedis(t *testing.T) {
	r, err := StartRedis(t.Context())
	if err != nil {
		pgtest.Fatal(t, err)
	}
	if r.Version == "" {
		t.Error("its version is unknown")
	}
	for range 2 {
		if err := r.Close(); err != nil {
			t.Fatal(err)
		}
	}
	if err := r.process.Signal(syscall.Signal(0)); err == nil {
		t.Error("the process is still there")
	}
}

// The meters count what processes do.
func TestUsage(t *testing.T) {
	s, err := Start(t.Context())
	if err != nil {
		pgtest.Fatal(t, err)
	}
	defer func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	}()
	before := s.Usage()
	for deadline := time.Now().Add(30 * time.Second); s.Usage().Client <= before.Client; {
		if time.Now().After(deadline) {
			t.Fatalf("own time stays at %v", before.Client)
		}
	}
	if before.Server == 0 {
		t.Log("the servers' time is not measured on this system")
	}
	for _, name := range []string{"PostgreSQL", "Redis"} {
		if s.Versions()[name] == "" {
			t.Errorf("the version of %s is unknown", name)
		}
	}
	t.Log(s.Settings(), s.serverTime())
}

// deps.sh looks for redis-server where this package does.
func TestRedisPlaces(t *testing.T) {
	script, err := os.ReadFile("../../pgtest/deps.sh")
	if err != nil {
		t.Fatal(err)
	}
	want := "for dir in " + strings.Join(redisPlaces, " ") + "; do\n\t\t[ -x \"$dir/redis-server\" ]"
	if !strings.Contains(string(script), want) {
		t.Errorf("deps.sh lacks %q", want)
	}
}
