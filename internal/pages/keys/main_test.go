// Package keys tests docs/keys.md. The SQL, Python, JavaScript and Go on the
// page compute the same keys as package sqllock, and locks on these keys
// exclude each other.
package keys

import (
	"database/sql"
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
	stateOf    = dbtest.State
)

// expectBool checks what a query returns on conn.
func expectBool(t *testing.T, conn *sql.Conn, query string, want bool) {
	t.Helper()
	var got bool
	if err := conn.QueryRowContext(t.Context(), query).Scan(&got); err != nil || got != want {
		t.Errorf("%.60s… returns %v, %v, want %v", query, got, err, want)
	}
}
