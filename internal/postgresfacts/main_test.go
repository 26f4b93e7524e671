// Package postgresfacts tests what the project's pages say of PostgreSQL
// itself:
//
//   - how its advisory locks wait, time out and end;
//   - which deadlocks it detects;
//   - what pg_locks shows to which role.
//
// docs/deadlocks.md names the tests. A failure means that this
// version of PostgreSQL behaves differently. The page, or the code that relies
// on it, has to change then.
package postgresfacts

import (
	"testing"

	"github.com/latchkey-go/latchkey/internal/bound"
	"github.com/latchkey-go/latchkey/internal/dbtest"
)

func TestMain(m *testing.M) {
	bound.Lengthen()
	dbtest.Main(m)
}

var (
	eachDriver  = dbtest.EachDriver
	eachCluster = dbtest.EachCluster

	open          = dbtest.Open
	connection    = dbtest.Conn
	execute       = dbtest.Execute
	executeOn     = dbtest.ExecuteOn
	number        = dbtest.Number
	expectBool    = dbtest.ExpectBool
	backendPID    = dbtest.BackendPID
	advisoryLocks = dbtest.AdvisoryLocks
	stateOf       = dbtest.State
)
