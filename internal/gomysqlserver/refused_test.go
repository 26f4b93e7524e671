package gomysqlserver

import (
	"context"
	"database/sql"
	"errors"
	"log/slog"
	"net"
	"os"
	"strings"
	"testing"

	sqle "github.com/dolthub/go-mysql-server"
	"github.com/dolthub/go-mysql-server/memory"
	"github.com/dolthub/go-mysql-server/server"
	gmsql "github.com/dolthub/go-mysql-server/sql"
	"github.com/go-sql-driver/mysql"
	"github.com/sirupsen/logrus"

	"github.com/latchkey-go/latchkey/internal/bound"
	"github.com/latchkey-go/latchkey/sqllock"
	"github.com/latchkey-go/latchkey/sqllock/lockdoctor"
)

func TestMain(m *testing.M) {
	bound.Lengthen()
	slog.SetDefault(slog.New(slog.DiscardHandler))
	logrus.SetLevel(logrus.PanicLevel)
	_ = mysql.SetLogger(&mysql.NopLogger{})
	os.Exit(m.Run())
}

// serve starts a server with the database app, and returns its DSN. Servers of one
// process share variables without protection, so tests run one after the other.
func serve(t *testing.T) string {
	t.Helper()
	listener, err := net.Listen("tcp4", "127.0.0.1:0")
	must(t, err)
	databases := memory.NewDBProvider(memory.NewDatabase("app"))
	s, err := server.NewServer(server.Config{Protocol: "tcp", Address: listener.Addr().String(), Listener: listener},
		sqle.NewDefault(databases), gmsql.NewContext, memory.NewSessionBuilder(databases), nil)
	must(t, err)
	ended := make(chan error, 1)
	go func() { ended <- s.Start() }()
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
		<-ended
	})
	return "root@tcp(" + listener.Addr().String() + ")/app"
}

// must fails the test if a step that the test needs has failed.
func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func open(t *testing.T, dsn string) *sql.DB {
	t.Helper()
	db, err := sql.Open("mysql", dsn)
	must(t, err)
	t.Cleanup(func() { _ = db.Close() })
	return db
}

// Open rejects the server, and says that it is no MySQL. The doctor gives the
// same reason.
func TestRefused(t *testing.T) {
	const says = "a setting of the session was rejected"
	db := open(t, serve(t))
	for name, opts := range map[string][]sqllock.Option{"detected": nil, "by WithDialect": {sqllock.WithDialect(sqllock.MySQL)}} {
		s, err := sqllock.Open(t.Context(), db, opts...)
		if err == nil {
			_ = s.Close()
		}
		if !errors.Is(err, sqllock.ErrNotExclusive) || !strings.Contains(err.Error(), says) || !strings.Contains(err.Error(), "use a server of MySQL or MariaDB") {
			t.Errorf("%s: Open: %v, want ErrNotExclusive that says %q", name, err, says)
		}
	}
	r, err := lockdoctor.Check(t.Context(), db)
	must(t, err)
	if c, _ := r.Find("exclusion"); c.State != lockdoctor.Error || !strings.Contains(c.Reason, says) || !strings.Contains(c.Fix, "MySQL or MariaDB") {
		t.Errorf("the doctor says of exclusion: %q, %q, %q", c.State, c.Reason, c.Fix)
	}
}

// The reason why no setting may be left out: this server excludes, but it keeps
// wait_timeout as a number only. It would never free the locks of a process that
// is frozen.
func TestLongNoLeaseOnThisServer(t *testing.T) {
	dsn := serve(t)
	holder, rival := connect(t, dsn), connect(t, dsn)
	if got := ask(t, holder, "SELECT GET_LOCK('a', 0)"); got != "1" {
		t.Fatalf("GET_LOCK of a free lock: %s", got)
	}
	_, err := holder.ExecContext(t.Context(), "SET SESSION wait_timeout = 1")
	must(t, err)
	if got := ask(t, rival, "SELECT GET_LOCK('a', 5)"); got != "0" {
		t.Errorf("GET_LOCK of a lock whose holder has been silent for longer than wait_timeout: %s: the server enforces it now, so look at it again", got)
	}
}

func connect(t *testing.T, dsn string) *sql.Conn {
	t.Helper()
	conn, err := open(t, dsn).Conn(context.Background())
	must(t, err)
	t.Cleanup(func() { _ = conn.Close() })
	return conn
}

func ask(t *testing.T, conn *sql.Conn, query string) (value string) {
	t.Helper()
	must(t, conn.QueryRowContext(t.Context(), query).Scan(&value))
	return value
}
