// Package keys tests docs/keys.md. The SQL, Python, JavaScript and Go on the
// page compute the same keys as package sqllock, and locks on these keys
// exclude each other.
package keys

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
	eachDriver = dbtest.EachDriver

	open       = dbtest.Open
	session    = dbtest.Session
	connection = dbtest.Conn
	mustLock   = dbtest.Lock
	unlock     = dbtest.Unlock
	execute    = dbtest.Execute
	expectBool = dbtest.ExpectBool
	stateOf    = dbtest.State
)
