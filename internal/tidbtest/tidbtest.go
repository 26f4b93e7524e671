// Package tidbtest starts throwaway TiDB servers for tests: two servers on one
// store in memory, in one process. What one has written the other reads, and only
// the store keeps their sessions apart.
//
//	func TestMain(m *testing.M) { os.Exit(tidbtest.Close(m.Run())) }
//
//	func TestLock(t *testing.T) {
//		s := tidbtest.Shared(t)
//		db, err := sql.Open("mysql", s.DSN(0, s.Database(t))) // a fresh database, on the first server
//		…
//	}
//
// The servers are a program of its own, which takes minutes to build.
// `make test-tidb` builds it, and sets [EnvServer] to its path. Without that the
// tests are skipped.
package tidbtest

import (
	"bufio"
	"crypto/rand"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/latchkey-go/latchkey/internal/pgtest"
)

// EnvServer is the environment variable with the path of the program.
const EnvServer = "LATCHKEY_TEST_TIDB"

// ErrNoTiDB reports that EnvServer is not set.
var ErrNoTiDB = errors.New("tidbtest: TiDB is tested by `make test-tidb`")

// Servers is how many servers there are.
const Servers = 2

// A Server is both servers with their store. It is a Daemon: Freeze stops all of
// it, and Kill loses the data.
type Server struct {
	*pgtest.Daemon
	ports [Servers]int
}

// Start starts the servers. The caller must Close them.
func Start() (*Server, error) {
	program := os.Getenv(EnvServer)
	if program == "" {
		return nil, ErrNoTiDB
	}
	s := new(Server)
	for i := 1; i < Servers; i++ {
		var err error
		if s.ports[i], err = pgtest.TakePort(); err != nil {
			return nil, err
		}
	}
	var err error
	s.Daemon, err = pgtest.StartDaemon(pgtest.Launch{
		OwnAccount: true,
		Args: func(dir, _ string, port int) []string {
			s.ports[0] = port
			return []string{program, "-control", filepath.Join(dir, "control"), "-ports", strings.ReplaceAll(strings.Trim(fmt.Sprint(s.ports), "[]"), " ", ",")}
		},
		Ready: func(dir, _ string, _ int) bool { return order(dir, "DO 1") == nil },
	})
	if err != nil {
		s.givePortsBack()
		return nil, err
	}
	return s, nil
}

func (s *Server) givePortsBack() {
	for _, port := range s.ports[1:] {
		pgtest.GivePortBack(port)
	}
}

// Close ends the servers.
func (s *Server) Close() error {
	defer s.givePortsBack()
	return s.Daemon.Close()
}

// Addr returns the address of server n, from 0 on, which is the same for its whole
// life.
func (s *Server) Addr(n int) string { return fmt.Sprintf("127.0.0.1:%d", s.ports[n]) }

// DSN returns the DSN of a database for github.com/go-sql-driver/mysql, through
// server n. The user is the superuser.
func (s *Server) DSN(n int, database string) string {
	return "root@tcp(" + s.Addr(n) + ")/" + database
}

// Execute runs a statement.
func (s *Server) Execute(statement string) error { return order(s.Dir(), statement) }

// StopOne ends server n with its connections. The store and the other server live
// on. A statement that was under way may end a moment later, and commit.
func (s *Server) StopOne(n int) error { return order(s.Dir(), fmt.Sprint("stop ", n)) }

// StartOne starts server n after StopOne.
func (s *Server) StartOne(n int) error { return order(s.Dir(), fmt.Sprint("start ", n)) }

// orderTimeout only ends a hang.
const orderTimeout = 30 * time.Second

// order gives the program in dir an order.
func order(dir, text string) error {
	conn, err := net.DialTimeout("unix", filepath.Join(dir, "control"), orderTimeout)
	if err != nil {
		return err
	}
	defer conn.Close()
	if err := conn.SetDeadline(time.Now().Add(orderTimeout)); err != nil {
		return err
	}
	if _, err := fmt.Fprintln(conn, strings.ReplaceAll(text, "\n", " ")); err != nil {
		return err
	}
	answer, err := bufio.NewReader(conn).ReadString('\n')
	if answer = strings.TrimSpace(answer); err == nil && answer != "" {
		err = fmt.Errorf("tidbtest: %s: %s", text, answer)
	}
	return err
}

// CreateDatabase creates a database with a random name and returns its name.
func (s *Server) CreateDatabase() (name string, err error) {
	name = "latchkey_" + strings.ToLower(rand.Text())
	return name, s.Execute("CREATE DATABASE " + name)
}

// Database is CreateDatabase. The database is dropped when the test ends.
func (s *Server) Database(tb testing.TB) (name string) {
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
	return name
}

// New starts servers of the test's own, which are closed when the test ends.
func New(tb testing.TB) *Server {
	tb.Helper()
	s, err := Start()
	if err != nil {
		fatal(tb, err)
	}
	tb.Cleanup(func() {
		if err := s.Close(); err != nil {
			tb.Error(err)
		}
	})
	return s
}

// shared are the servers that all tests of a binary use for their databases.
var shared struct {
	mu     sync.Mutex // held while they are started or closed, so that it happens once
	server *Server
}

// Shared returns the servers that all tests of the binary share. The first of them
// starts them.
func Shared(tb testing.TB) *Server {
	tb.Helper()
	shared.mu.Lock()
	defer shared.mu.Unlock()
	if shared.server == nil {
		s, err := Start()
		if err != nil {
			fatal(tb, err)
		}
		shared.server = s
	}
	return shared.server
}

// fatal ends a test whose servers did not start, or skips it without the program.
func fatal(tb testing.TB, err error) {
	tb.Helper()
	if errors.Is(err, ErrNoTiDB) {
		tb.Skip(strings.TrimPrefix(err.Error(), "tidbtest: "))
	}
	tb.Fatal(err)
}

// Close closes the shared servers, if they were started. A TestMain ends with it.
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
