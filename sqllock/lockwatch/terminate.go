package lockwatch

import (
	"context"
	"database/sql"
	"fmt"

	"github.com/latchkey-go/latchkey/internal/dialect/errcode"
	"github.com/latchkey-go/latchkey/internal/dialect/postgres"
)

// Terminate ends the server session of p, with all its locks, and reports whether it
// did. It is for an operator who has read a [Snapshot] and decided. It goes by p.PID
// and p.Start, since the server uses a PID again.
//
// Terminate returns false without an error in these cases:
//   - The session has ended meanwhile.
//   - It neither holds an advisory lock of db's database nor takes part in a wait.
//   - p.Start is zero: this role may not see the start.
//
// The role of db must be the role of the session, a member of it, or a member of
// pg_signal_backend. Only a superuser can end the session of a superuser. The errors
// are those of [Inspect]. Terminate panics if db is nil.
func Terminate(ctx context.Context, db *sql.DB, p Process) (bool, error) {
	if db == nil {
		panic("lockwatch: Terminate needs a *sql.DB that is not nil")
	}
	if p.PID <= 0 || p.Start.IsZero() {
		return false, nil
	}
	ended, err := bounded(ctx, func() (bool, error) { return postgres.EndProcess(ctx, db, p.PID, p.Start) })
	if errcode.SQLState(err) == insufficientPrivilege {
		return false, fmt.Errorf("lockwatch: this role may not end that session: grant it pg_signal_backend, or that session's own role (a superuser's only a superuser ends): %w", err)
	}
	return ended, publicError(err)
}
