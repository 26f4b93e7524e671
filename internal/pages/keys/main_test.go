// Package keys tests docs/keys.md: the SQL, Python, JavaScript and Go on the page
// compute the same keys as package sqllock, and the locks exclude each other.
package keys

import (
	"testing"

	"github.com/latchkey-go/latchkey/internal/dbtest"
)

func TestMain(m *testing.M) { dbtest.Main(m) }

var (
	eachDriver = dbtest.EachDriver

	open          = dbtest.Open
	session       = dbtest.Session
	connection    = dbtest.Conn
	mustLock      = dbtest.Lock
	giveBack      = dbtest.Unlock
	execute       = dbtest.Execute
	number        = dbtest.Number
	says          = dbtest.ExpectBool
	advisoryLocks = dbtest.AdvisoryLocks
	stateOf       = dbtest.State
)

const sessionPID = dbtest.SessionPID
