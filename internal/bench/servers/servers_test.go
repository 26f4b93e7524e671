package servers

import (
	"database/sql"
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

// The meter counts what the servers do.
func TestTime(t *testing.T) {
	s, err := Start(t.Context())
	if err != nil {
		pgtest.Fatal(t, err)
	}
	defer func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	}()
	before := s.Time()
	if before == 0 {
		t.Skip("the servers' time is not measured on this system")
	}
	db, err := sql.Open("pgx", s.Postgres)
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	for deadline := time.Now().Add(30 * time.Second); s.Time() <= before; {
		if _, err := db.ExecContext(t.Context(), "SELECT count(*) FROM generate_series(1, 100000)"); err != nil || time.Now().After(deadline) {
			t.Fatalf("the time stays at %v, %v", before, err)
		}
	}
	if s.Version == "" || s.Redis.Version == "" {
		t.Errorf("versions %q and %q", s.Version, s.Redis.Version)
	}
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
