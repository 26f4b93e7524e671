package pgtest

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
)

// shared is the server that all tests of a binary use for their databases,
// unless LATCHKEY_TEST_POSTGRES names one.
var shared struct {
	mu      sync.Mutex // held while it is started or closed, so that it happens once
	cluster *Cluster

	adminMu sync.Mutex // protects admin
	admin   []idleConn
}

// An idleConn created or dropped a database, and waits for the next one: a
// connection takes longer than the statement.
type idleConn struct {
	server string // its DSN
	*pgx.Conn
}

// administrate executes a statement on the server at dsn, on an idle connection
// if there is one.
func administrate(ctx context.Context, dsn, query string) error {
	conn := idle(dsn)
	if conn != nil && conn.Ping(ctx) != nil { // its server has ended
		closeConn(ctx, conn)
		conn = nil
	}
	if conn == nil {
		var err error
		if conn, err = pgx.Connect(ctx, dsn); err != nil {
			return err
		}
	}
	if err := executeOn(ctx, conn, query); err != nil {
		closeConn(ctx, conn)
		return err
	}
	shared.adminMu.Lock()
	defer shared.adminMu.Unlock()
	shared.admin = append(shared.admin, idleConn{dsn, conn})
	return nil
}

// idle takes an idle connection to the server at dsn, or returns nil.
func idle(dsn string) *pgx.Conn {
	shared.adminMu.Lock()
	defer shared.adminMu.Unlock()
	for i, c := range shared.admin {
		if c.server == dsn {
			shared.admin = slices.Delete(shared.admin, i, i+1)
			return c.Conn
		}
	}
	return nil
}

// dropDatabase drops a database of the server at dsn, and ends the connections
// to it.
func dropDatabase(ctx context.Context, dsn, name string) error {
	return poll(20*time.Second, "database "+name+" to be free", func() (bool, error) {
		err := administrate(ctx, dsn, "DROP DATABASE IF EXISTS "+name+" WITH (FORCE)")
		if pg := (*pgconn.PgError)(nil); errors.As(err, &pg) && pg.Code == "55006" {
			return false, nil // in use: one of the ended sessions takes its time
		}
		return err == nil, err
	})
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
	shared.adminMu.Lock()
	for _, c := range shared.admin {
		closeConn(context.Background(), c.Conn)
	}
	shared.admin = nil
	shared.adminMu.Unlock()
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
	name, create := newDatabase()
	if err := administrate(ctx, server, create); err != nil {
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
