package databases

import (
	"context"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/latchkey-go/latchkey/internal/dialect"
	"github.com/latchkey-go/latchkey/internal/dialect/mysql"
)

// openRewritten opens a session whose statements can be changed, in a database
// of its own.
func openRewritten(t *testing.T) (dialect.Session, *interceptor) {
	t.Helper()
	i, db := rewritten(t, mariadb(t))
	return connectTo(t, db, false), i
}

// Open rejects a server that looks like MySQL but does not exclude.
func TestMySQLProof(t *testing.T) {
	t.Parallel()
	replacing := func(old, replacement string) func(string) string {
		return func(query string) string { return strings.ReplaceAll(query, old, replacement) }
	}
	var asked atomic.Int32
	for _, tt := range []struct {
		name   string
		change func(query string) string
		kind   dialect.Kind
		says   string
	}{
		{"grants every lock", replacing("GET_LOCK(", "COALESCE(1,"), dialect.NotExclusive, "did not exclude"},
		{"grants none", replacing("GET_LOCK(", "COALESCE(0,"), dialect.NotExclusive, "did not exclude"},
		{"a lock for each connection", replacing("GET_LOCK(", "RELEASE_ALL_LOCKS() >= 0 AND GET_LOCK("), dialect.NotExclusive, "two could not be held at once"},
		{"one connection for all", replacing("CONNECTION_ID()", "42"), dialect.NotExclusive, "proxy"},
		{"a connection for each statement", replacing("CONNECTION_ID()", "UUID_SHORT()"), dialect.NotExclusive, "proxy"},
		{"too old", replacing("VERSION()", "'5.7.44'"), dialect.NotExclusive, "8.0.16"},
		{"silent", replacing("CONNECTION_ID(), 0", "CONNECTION_ID(), SLEEP(60)"), dialect.Gone, "in time"},
		{"silent while another is in a transaction", func(query string) string {
			if !strings.HasSuffix(query, "CONNECTION_ID(), 0") || asked.Add(1) != 5 {
				return query // the fifth call is the session's; the witness is in a transaction
			}
			return "SELECT SLEEP(60), 0"
		}, dialect.NotExclusive, "in a transaction: a proxy"},
		{"rejects a setting", replacing("wait_timeout = 3600,", "unknown_setting = 1,"), dialect.NotExclusive, "a setting of the session was rejected"},
		{"keeps wait_timeout", replacing("wait_timeout = 3600,", ""), dialect.NotExclusive, "wait_timeout could not be set"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			interceptor, db := rewritten(t, mariadb(t))
			interceptor.change.Store(&tt.change)
			set := settings
			if strings.HasPrefix(tt.name, "silent") {
				set.Proof = 5 * time.Second // for each question
			}
			s, err := mysql.Dialect{}.Open(context.Background(), db, set)
			if err == nil {
				s.Destroy()
			}
			if !isOfKind(err, tt.kind) || !strings.Contains(err.Error(), tt.says) {
				t.Errorf("Open: %v, want a Failure of Kind %d that says %q", err, tt.kind, tt.says)
			}
		})
	}
}

// A statement that fails halfway ends the session, since nothing says which keys it
// has acquired. Its end frees them.
func TestMySQLFailsHalfWay(t *testing.T) {
	t.Parallel()
	s, interceptor := openRewritten(t)
	exchange(t, s, dialect.Batch{Try: big(1)})
	fail := func(query string) string { // after the first
		return strings.Replace(query, ",0),'n'),", ",0),'n'),IF(CONNECTION_ID() > 0, (SELECT 1 UNION SELECT 2), 0),", 1)
	}
	interceptor.change.Store(&fail)
	if err := s.Exchange(&dialect.Batch{Try: big(2, 3)}); !isOfKind(err, dialect.Gone) || !strings.Contains(err.Error(), "1242") {
		t.Fatalf("Exchange: %v, want a Failure of Kind Gone with error 1242", err)
	}
}

// A session rejects a response of another connection, of a server that has
// become a replica, or one that makes no sense.
func TestMySQLWrongAnswers(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name             string
		old, replacement string
		kind             dialect.Kind
	}{
		{"another connection", "CONNECTION_ID(),", "CONNECTION_ID() + 1,", dialect.NotExclusive},
		{"a replica", "@@global.read_only", "'ON'", dialect.NotExclusive},
		{"interrupted", "CONCAT(''", "CONCAT(NULL", dialect.Gone},
		{"not a letter of ours", "CONCAT(''", "CONCAT('x'", dialect.Gone},
		{"too much", "CONCAT(''", "CONCAT('1'", dialect.Gone},
		{"too little", "CONCAT(''", "'1' -- ", dialect.Gone},
		{"no result for a look", "'',';')", "'','')", dialect.Gone},
		{"more than a look wants", "'0,',''", "'0,1,',''", dialect.Gone},
		{"a place that a look has not", "'0,',''", "'9,',''", dialect.Gone},
		{"a place that is no number", "'0,',''", "'x,',''", dialect.Gone},
		{"the server cannot tell", "IFNULL(GET_LOCK(", "IFNULL(NULL AND GET_LOCK(", dialect.Gone},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			s, interceptor := openRewritten(t)
			change := func(query string) string {
				return strings.Replace(query, tt.old, tt.replacement, 1)
			}
			interceptor.change.Store(&change)
			err := s.Exchange(&dialect.Batch{Try: big(1, 2), Looks: []dialect.Look{{Keys: big(3, 4), Want: 1}}})
			if !isOfKind(err, tt.kind) {
				t.Errorf("Exchange: %v, want a Failure of Kind %d", err, tt.kind)
			}
		})
	}
}
