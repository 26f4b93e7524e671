package lockwatch_test

import (
	"context"
	"log/slog"
	"os"
	"testing"

	"go.uber.org/goleak"

	"github.com/latchkey-go/latchkey/internal/pgtest"
	"github.com/latchkey-go/latchkey/sqllock"
)

func TestMain(m *testing.M) {
	runRegisteringHolder()                         // does not return in such a process
	slog.SetDefault(slog.New(slog.DiscardHandler)) // tests cause losses, and losses are logged
	code := pgtest.Main(m)
	if code == 0 {
		if err := goleak.Find(); err != nil {
			println(err.Error())
			code = 1
		}
	}
	os.Exit(code)
}

// session opens a Session with a pool of its own on dsn, as a process would.
func session(t *testing.T, driver, dsn string, opts ...sqllock.Option) *sqllock.Session {
	t.Helper()
	s, err := sqllock.Open(context.Background(), pgtest.Open(t, driver, dsn), opts...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() })
	return s
}

// mustLock acquires key, which must be free.
func mustLock(t *testing.T, s *sqllock.Session, key sqllock.Key) *sqllock.Lock {
	t.Helper()
	lock, err := s.TryLock(t.Context(), key)
	if err != nil {
		t.Fatalf("TryLock: %v", err)
	}
	return lock
}
