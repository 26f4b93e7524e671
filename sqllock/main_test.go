package sqllock_test

import (
	"context"
	"database/sql"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/latchkey-go/latchkey/internal/bound"
	"github.com/latchkey-go/latchkey/internal/dbtest"
	"github.com/latchkey-go/latchkey/internal/lockertest"
	"github.com/latchkey-go/latchkey/sqllock"
)

func TestMain(m *testing.M) {
	bound.Lengthen()    // first: the processes of a test have these bounds too
	lockertest.Worker() // does not return in a process of a test with several
	dbtest.Main(m)
}

// What these tests share with those of other packages.
var (
	eachDriver  = dbtest.EachDriver
	eachCluster = dbtest.EachCluster

	open          = dbtest.Open
	session       = dbtest.Session
	transaction   = dbtest.Transaction
	connection    = dbtest.Conn
	mustLock      = dbtest.Lock
	unlock        = dbtest.Unlock
	create        = dbtest.Create
	execute       = dbtest.Execute
	number        = dbtest.Number
	advisoryLocks = dbtest.AdvisoryLocks
	waitForLocks  = dbtest.WaitForLocks

	stateOf      = dbtest.State
	tellsNothing = dbtest.TellsNothing
	namesOnce    = dbtest.NamesOnce

	exampleDatabase = dbtest.ExampleDatabase
	exampleSession  = dbtest.ExampleSession
)

const sessionPID = dbtest.SessionPID

// sessions counts the connections of Sessions to db's database.
func sessions(tb testing.TB, db *sql.DB) int {
	tb.Helper()
	return number(tb, db, `SELECT count(*) FROM pg_stat_activity
		WHERE datname = current_database() AND application_name LIKE '%latchkey'`)
}

// sessionOn opens a Session on db.
func sessionOn(tb testing.TB, db *sql.DB, opts ...sqllock.Option) *sqllock.Session {
	tb.Helper()
	s, err := sqllock.Open(context.Background(), db, opts...)
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() { _ = s.Close() })
	return s
}

// terminate ends the connections of Sessions to db's database.
func terminate(tb testing.TB, db *sql.DB) {
	tb.Helper()
	number(tb, db, `SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity
		WHERE datname = current_database() AND application_name LIKE '%latchkey'`)
}

// shortLease is for Sessions in whose tests a bound is reached: their bounds are
// not lengthened.
func shortLease() sqllock.Option { return sqllock.WithLease(2 * time.Second) }

// A lockedBuffer keeps a log.
type lockedBuffer struct {
	mu   sync.Mutex // protects text
	text strings.Builder
}

func (l *lockedBuffer) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(p)
}

func (l *lockedBuffer) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.String()
}

// count returns how often the log contains s.
func (l *lockedBuffer) count(s string) int { return strings.Count(l.String(), s) }
