package databases

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"reflect"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/go-sql-driver/mysql"

	"github.com/latchkey-go/latchkey/internal/dialect"
)

// A spoiler is a way to MySQL that can change the next statements.
type spoiler struct {
	driver.Connector
	change atomic.Pointer[func(query string) string]
}

func (s *spoiler) Connect(ctx context.Context) (driver.Conn, error) {
	conn, err := s.Connector.Connect(ctx)
	return &spoiledConn{conn, s}, err
}

// A spoiledConn is wrapped as those are that trace statements.
type spoiledConn struct {
	driver.Conn
	s *spoiler
}

func (c *spoiledConn) Raw() driver.Conn { return c.Conn }

func (c *spoiledConn) changed(query string) string {
	if change := c.s.change.Load(); change != nil {
		return (*change)(query)
	}
	return query
}

func (c *spoiledConn) QueryContext(ctx context.Context, query string, args []driver.NamedValue) (driver.Rows, error) {
	return c.Conn.(driver.QueryerContext).QueryContext(ctx, c.changed(query), args)
}

func (c *spoiledConn) ExecContext(ctx context.Context, query string, args []driver.NamedValue) (driver.Result, error) {
	return c.Conn.(driver.ExecerContext).ExecContext(ctx, c.changed(query), args)
}

// spoiled is a session whose statements can be changed.
func spoiled(t *testing.T) (dialect.Session, *spoiler) {
	t.Helper()
	config, err := mysql.ParseDSN(mariadb(t).DSN)
	if err != nil {
		t.Fatal(err)
	}
	connector, err := mysql.NewConnector(config)
	if err != nil {
		t.Fatal(err)
	}
	s := &spoiler{Connector: connector}
	db := sql.OpenDB(s)
	t.Cleanup(func() { _ = db.Close() })
	session, err := dialect.MySQL{}.Open(context.Background(), db, settings)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(session.Destroy)
	return session, s
}

// A statement that fails half-way leaves the session alive, which knows what it took until
// then, and what it did not give back.
func TestMySQLFailsHalfWay(t *testing.T) {
	t.Parallel()
	s, spoiler := spoiled(t)
	exchange(t, s, dialect.Batch{Try: big(-2, -1)})
	failAt := func(mark string, n int) {
		fail := func(query string) string {
			parts := strings.SplitAfterN(query, mark, n+1)
			last := len(parts) - 1
			parts[last-1] = strings.TrimSuffix(parts[last-1], mark)
			return strings.Join(parts[:last], "") + ",IF(CONNECTION_ID() > 0, (SELECT 1 UNION SELECT 2), 0)" + mark + parts[last]
		}
		spoiler.change.Store(&fail)
	}
	failAt(",IFNULL(GET_LOCK(", 3) // before the third
	b := dialect.Batch{Release: big(-2), Try: big(1, 2, 3, 4), Any: [][]dialect.Key{big(5, 6)}}
	if err := s.Exchange(&b); !isOfKind(err, dialect.Statement) {
		t.Fatalf("Exchange: %v, want a Failure of Kind Statement", err)
	}
	spoiler.change.Store(nil)
	if got := held(t, s); !reflect.DeepEqual(got, big(-1, 1, 2)) {
		t.Errorf("held: %v", got)
	}
	failAt(",IFNULL(RELEASE_LOCK(", 2)
	if err := s.Exchange(&dialect.Batch{Release: big(-1, 1, 2)}); !isOfKind(err, dialect.Statement) {
		t.Fatalf("Exchange: %v, want a Failure of Kind Statement", err)
	}
	spoiler.change.Store(nil)
	if got := held(t, s); !reflect.DeepEqual(got, big(1, 2)) {
		t.Errorf("held: %v", got)
	}
	if got := exchange(t, s, dialect.Batch{Release: big(1, 2)}); len(got.NotHeld) > 0 {
		t.Errorf("not held: %v", got.NotHeld)
	}
}

// An answer of another connection, or of a server that has become a replica, is not
// taken for one of the session's; nor is one that makes no sense.
func TestMySQLWrongAnswers(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name, old, replacement string
		kind                   dialect.Kind
	}{
		{"another connection", "CONNECTION_ID(),", "CONNECTION_ID() + 1,", dialect.NotExclusive},
		{"a replica", "@@global.read_only", "'ON'", dialect.NotExclusive},
		{"too short", "CONCAT(''", "LEFT(CONCAT(''", dialect.Gone},
		{"not a letter of ours", "CONCAT(''", "CONCAT('x'", dialect.Gone},
		{"no answer to a group", ",CASE", ",IF(1, '', ',0'),CASE", dialect.Gone},
		{"a group's place that is none", "THEN ',0'", "THEN ',9'", dialect.Gone},
		{"NULL of a try", "GET_LOCK('latchkey", "NULLIF('latchkey", dialect.Statement},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			s, spoiler := spoiled(t)
			change := func(query string) string {
				switch {
				case tt.name == "too short":
					return strings.Replace(query, tt.old, tt.replacement, 1) + ", 1)"
				case tt.name == "no answer to a group":
					return strings.Replace(query, "',0' WHEN", "'' WHEN", 1)
				case strings.HasPrefix(tt.name, "NULL"):
					return strings.Replace(query, "IFNULL(GET_LOCK(", "IFNULL(NULL AND GET_LOCK(", 1)
				}
				return strings.Replace(query, tt.old, tt.replacement, 1)
			}
			spoiler.change.Store(&change)
			err := s.Exchange(&dialect.Batch{Try: big(1, 2), Any: [][]dialect.Key{big(3, 4)}})
			if !isOfKind(err, tt.kind) {
				t.Errorf("Exchange: %v, want a Failure of Kind %d", err, tt.kind)
			}
		})
	}
}
