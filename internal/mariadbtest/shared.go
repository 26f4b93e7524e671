package mariadbtest

import (
	"fmt"
	"os"
	"sync"
	"testing"

	"github.com/latchkey-go/latchkey/internal/pgtest"
)

// shared is the server that all tests of a binary use for their databases.
var shared struct {
	mu     sync.Mutex // held while it is started or closed, so that it happens once
	server *Server
}

func sharedServer() (*Server, error) {
	shared.mu.Lock()
	defer shared.mu.Unlock()
	if shared.server == nil {
		s, err := Start()
		if err != nil {
			return nil, err
		}
		shared.server = s
	}
	return shared.server, nil
}

// Database returns the DSN of a fresh database, which is dropped when the test
// ends. All tests of the binary share its server, which the first of them
// starts. Without MariaDB the test fails and says what to do, or is skipped
// (pgtest.EnvMissing).
func Database(tb testing.TB) string {
	tb.Helper()
	s, err := sharedServer()
	if err != nil {
		pgtest.Fatal(tb, err)
	}
	return s.Database(tb)
}

// Database is Database on s.
func (s *Server) Database(tb testing.TB) string {
	tb.Helper()
	name, err := s.CreateDatabase()
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() {
		if err := s.Execute("DROP DATABASE IF EXISTS " + name); err != nil {
			tb.Error(err)
		}
	})
	return s.DSN(name)
}

// New starts a server of the test's own, which is closed when the test ends.
func New(tb testing.TB, options ...string) *Server {
	tb.Helper()
	s, err := Start(options...)
	if err != nil {
		pgtest.Fatal(tb, err)
	}
	tb.Cleanup(func() {
		if err := s.Close(); err != nil {
			tb.Error(err)
		}
	})
	return s
}

// Close closes the shared server, if it was started. A TestMain ends with it.
// It returns code, or 1 if code is 0 and closing fails.
func Close(code int) int {
	shared.mu.Lock()
	defer shared.mu.Unlock()
	if shared.server == nil {
		return code
	}
	err := shared.server.Close()
	shared.server = nil
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		code = max(code, 1)
	}
	return code
}

// Main runs the tests, closes the shared server and returns the exit code.
func Main(m *testing.M) int { return Close(m.Run()) }
