package postgres

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"reflect"
	"strings"
	"testing"

	"github.com/latchkey-go/latchkey/internal/dialect"
	"github.com/latchkey-go/latchkey/internal/pgtest"
)

// The statement means the same in every mode in which a driver can send it.
func TestDriverModes(t *testing.T) {
	modes := []struct{ driver, option string }{
		{"pgx", ""},
		{"pgx", "default_query_exec_mode=cache_describe"},
		{"pgx", "default_query_exec_mode=describe_exec"},
		{"pgx", "default_query_exec_mode=exec"},
		{"pgx", "default_query_exec_mode=simple_protocol"},
		{"postgres", ""},
		{"postgres", "binary_parameters=yes"},
	}
	for _, mode := range modes {
		t.Run(mode.driver+" "+mode.option, func(t *testing.T) {
			t.Parallel()
			dsn := pgtest.Database(t)
			if mode.option != "" {
				separator := "?"
				if strings.Contains(dsn, "?") {
					separator = "&"
				}
				dsn += separator + mode.option
			}
			a, b := connect(t, openPool(t, mode.driver, dsn)), connect(t, openPool(t, mode.driver, dsn))
			numbers := big(1, -2, 1<<63-1, -1<<63, 0)
			for _, keys := range [][]dialect.Key{numbers, pairs(0, 1, -1, 1<<31-1, -1<<31), big(7)} {
				if got := exchange(t, a, dialect.Batch{Try: keys}); len(got.Busy) != 0 {
					t.Errorf("free keys: busy %v", got.Busy)
				}
				if got := exchange(t, b, dialect.Batch{Try: keys}); !reflect.DeepEqual(got.Busy, keys) {
					t.Errorf("busy: %v, want %v", got.Busy, keys)
				}
				if got := exchange(t, b, dialect.Batch{Release: keys}); !got.NotHeld {
					t.Error("a release of what another session holds was accepted")
				}
				if got := exchange(t, a, dialect.Batch{Release: keys}); got.NotHeld {
					t.Error("what was taken is not held")
				}
			}
			all := dialect.Batch{
				Looks:  []dialect.Look{{Keys: numbers, Want: 2}},
				Stacks: []dialect.Stack{{Levels: [][]dialect.Key{big(8), big(9)}}, {Levels: [][]dialect.Key{big(10, 11), big(12)}}, {Levels: [][]dialect.Key{pairs(13), big(14)}}},
			}
			got := exchange(t, a, all)
			if won := got.Looks[0].Won; !reflect.DeepEqual(won, []int{0, 1}) {
				t.Errorf("won: %v", won)
			}
			for i, s := range got.Stacks {
				if s.Failed >= 0 {
					t.Errorf("stack %d of free keys failed at level %d", i, s.Failed)
				}
			}
		})
	}
}

// A wrapped driver may have neither contexts nor a checker of arguments. The
// session then uses what the driver has.
func TestPlainDriver(t *testing.T) {
	dsn := pgtest.Database(t)
	plain := sql.OpenDB(plainConnector{dsn, openPool(t, "postgres", dsn).Driver()})
	t.Cleanup(func() { _ = plain.Close() })
	a, b := connect(t, plain), connect(t, plain)
	exchange(t, a, dialect.Batch{Try: big(1, 2)})
	if got := exchange(t, b, dialect.Batch{Try: big(1, 2, 3)}); !reflect.DeepEqual(got.Busy, big(1, 2)) {
		t.Errorf("busy: %v, want 1 and 2", got.Busy)
	}
}

type plainConnector struct {
	dsn    string
	driver driver.Driver
}

func (c plainConnector) Driver() driver.Driver { return c.driver }

func (c plainConnector) Connect(context.Context) (driver.Conn, error) {
	conn, err := c.driver.Open(c.dsn)
	return plainConn{conn}, err
}

// plainConn hides all that a connection can do beyond driver.Conn.
type plainConn struct{ driver.Conn }

func (c plainConn) Prepare(query string) (driver.Stmt, error) {
	stmt, err := c.Conn.Prepare(query)
	return plainStmt{stmt}, err
}

type plainStmt struct{ driver.Stmt }

// A response that does not fit the request is an error, or an unlock of what was
// not held, and never a grant.
func TestAnswerMustFit(t *testing.T) {
	t.Parallel()
	looks := func() *dialect.Batch {
		return &dialect.Batch{Looks: []dialect.Look{{Keys: big(1, 2, 3), Want: 2}, {Keys: big(4), Want: 1}}}
	}
	stacks := func(levels ...[]dialect.Key) func() *dialect.Batch {
		return func() *dialect.Batch { return &dialect.Batch{Stacks: []dialect.Stack{{Levels: levels}}} }
	}
	two := func() *dialect.Batch { return &dialect.Batch{Release: big(1, 2)} }
	one := func() *dialect.Batch { return &dialect.Batch{Try: big(1)} }
	for _, tt := range []struct {
		name    string
		batch   func() *dialect.Batch
		form    form
		columns []string
	}{
		{"two looks", looks, tryLooks, []string{
			"{}", "{0}", "{0,0,0}", "{1,0,0}", "{1,4,0}", "{2,2,1,0}", "{2,1,1,0}", "{3,1,2,3,0}", "{-1,0}", "{0,1}", "{0,2,1,1}", "nonsense", "", "true",
		}},
		{"a stack", stacks(big(1, 2), big(3)), tryStacks, []string{
			"{}", "{0,0}", "{1}", "{1,0}", "{1,3}", "{2,1}", "{2,1,2}", "{2,3,3}", "{2,1,4}", "{3,1,2,3}", "{-1}", "{2,1,3,0}", "",
		}},
		{"a plain stack", stacks(big(1), big(2)), tryPlainStacks, []string{"{}", "{-1}", "{3}", "{0,0}", "nonsense", ""}},
		{"two keys", two, releaseKeys, []string{"{0}", "{3}", "{-1}", ""}},
		{"one key", one, tryKeys | single, []string{"maybe", "", "{1}"}},
	} {
		for _, column := range tt.columns {
			if b := tt.batch(); readResponse(b, tt.form, []string{column}) == nil && !b.NotHeld {
				t.Errorf("%s: an answer of %v was accepted: %+v", tt.name, column, b)
			}
		}
	}
}
