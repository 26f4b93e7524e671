package sqllock_test

import (
	"database/sql"
	"testing"

	"github.com/latchkey-go/latchkey/internal/dbtest"
	"github.com/latchkey-go/latchkey/internal/lockertest"
)

func TestMain(m *testing.M) {
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
