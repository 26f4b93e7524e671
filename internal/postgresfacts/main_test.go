// Package postgresfacts tests what the project's pages say of PostgreSQL itself:
// how its advisory locks wait, time out and end, which deadlocks it detects, and
// what pg_locks shows to whom. docs/deadlocks.md names each of these tests.
//
// A failure means that a version of PostgreSQL behaves differently, and that the
// page or the code that relies on it has to change.
package postgresfacts

import (
	"testing"

	"github.com/latchkey-go/latchkey/internal/dbtest"
)

func TestMain(m *testing.M) { dbtest.Main(m) }

var (
	eachDriver  = dbtest.EachDriver
	eachCluster = dbtest.EachCluster

	open          = dbtest.Open
	session       = dbtest.Session
	transaction   = dbtest.Transaction
	connection    = dbtest.Conn
	mustLock      = dbtest.Lock
	giveBack      = dbtest.Unlock
	execute       = dbtest.Execute
	executeOn     = dbtest.ExecuteOn
	number        = dbtest.Number
	says          = dbtest.ExpectBool
	backendPID    = dbtest.BackendPID
	advisoryLocks = dbtest.AdvisoryLocks
	stateOf       = dbtest.State
)
