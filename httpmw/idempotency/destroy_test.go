package idempotency

import (
	"database/sql"
	"testing"
)

// The rollback of a cancelled transaction may close a connection that is being
// destroyed. For a moment a *sql.Conn then is as one without a value: it has not
// been closed, and has no connection of the driver. Raw panics on that, which
// must not end the process.
func TestDestroyWhileTheConnectionIsClosed(t *testing.T) {
	(&transaction{conn: new(sql.Conn)}).destroy()
}
