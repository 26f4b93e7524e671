package pgtest

import (
	"context"
	"fmt"
	"os"
	"sync"
	"testing"
	"time"
)

// shared is the server that all tests of a binary use for their databases,
// unless LATCHKEY_TEST_POSTGRES names one.
var shared struct {
	mu      sync.Mutex // held while it is started or closed, so that it happens once
	cluster *Cluster
}

// sharedDSN returns the DSN of the shared server. The first call starts it.
func sharedDSN() (string, error) {
	if dsn := os.Getenv(EnvServer); dsn != "" {
		return dsn, nil
	}
	shared.mu.Lock()
	defer shared.mu.Unlock()
	if shared.cluster == nil {
		c, err := Start()
		if err != nil {
			return "", err
		}
		shared.cluster = c
	}
	return shared.cluster.DSN(""), nil
}

func closeShared() error {
	shared.mu.Lock()
	defer shared.mu.Unlock()
	if shared.cluster == nil {
		return nil
	}
	err := shared.cluster.Close()
	shared.cluster = nil
	return err
}

// Temporary is Database for a program or an Example, which has no testing.TB.
// It returns the DSN of a fresh database on the shared server, and a function
// that drops it. The shared server ends with the process, unless Main ends it
// earlier.
func Temporary(ctx context.Context) (dsn string, drop func() error, err error) {
	server, err := sharedDSN()
	if err != nil {
		return "", nil, err
	}
	name, err := createDatabase(ctx, server)
	if err != nil {
		return "", nil, err
	}
	drop = func() error {
		ctx, cancel := context.WithTimeout(context.Background(), stopTimeout)
		defer cancel()
		return dropDatabase(ctx, server, name)
	}
	return withDatabase(server, name), drop, nil
}

// Database returns the DSN of a fresh database, which is dropped when the test
// ends.
//
// The database is on the server that LATCHKEY_TEST_POSTGRES names. Without one,
// it is on a server that all tests of the binary share. Without PostgreSQL the
// test fails and says what to do, or is skipped (EnvMissing).
func Database(tb testing.TB) string {
	tb.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	dsn, drop, err := Temporary(ctx)
	if err != nil {
		Fatal(tb, err)
	}
	tb.Cleanup(func() {
		if err := drop(); err != nil {
			tb.Error(err)
		}
	})
	return dsn
}

// New starts a cluster of the test's own, which is closed when the test ends.
func New(tb testing.TB, opts ...Option) *Cluster {
	tb.Helper()
	c, err := Start(opts...)
	if err != nil {
		Fatal(tb, err)
	}
	tb.Cleanup(func() {
		if err := c.Close(); err != nil {
			tb.Error(err)
		}
	})
	return c
}

// Main runs the tests, closes the shared server and returns the exit code:
//
//	func TestMain(m *testing.M) { os.Exit(pgtest.Main(m)) }
//
// After it no goroutine of this package remains, so goleak can check the
// process:
//
//	code := pgtest.Main(m)
//	if err := goleak.Find(); err != nil { … }
func Main(m *testing.M) int {
	if err := skipExamples(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	code := m.Run()
	if err := closeShared(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		code = max(code, 1)
	}
	return code
}
