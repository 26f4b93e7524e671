package sqllock_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/latchkey-go/latchkey/sqllock"
)

// On Aurora a position in the write-ahead log is no token. A Session on a
// connection of its own reports that. A Session with a lease table counts its
// tokens instead.
func TestFenceOnAurora(t *testing.T) {
	eachDriver(t, func(t *testing.T, driver, dsn string) {
		direct := open(t, driver, dsn)
		execute(t, direct, "CREATE FUNCTION aurora_version() RETURNS text LANGUAGE sql AS $$ SELECT '15.4.0' $$")
		for _, s := range sqllock.FenceSchema(sqllock.PostgreSQL) {
			execute(t, direct, s)
		}
		s := session(t, driver, dsn)
		lock := take(t, s, 0, 1)[0]
		tx := transaction(t, direct)
		err := sqllock.Fence(t.Context(), tx, lock)
		if !errors.Is(err, errors.ErrUnsupported) || !strings.Contains(err.Error(), "WithLeaseTable()") {
			t.Errorf("Fence: %v, want ErrUnsupported with advice", err)
		}
		unlock(t, lock)

		if driver == "pgx" {
			dsn += "&default_query_exec_mode=exec"
		}
		table := session(t, driver, dsn, sqllock.WithLeaseTable())
		tx = transaction(t, direct)
		if err := sqllock.Fence(t.Context(), tx, take(t, table, 0, 1)[0]); err != nil {
			t.Errorf("Fence with a lease table: %v", err)
		}
		var timeline int
		if err := tx.QueryRow("SELECT timeline FROM latchkey_fence").Scan(&timeline); err != nil || timeline != 0 {
			t.Errorf("the token is of timeline %d, %v; want a counter's, which is of none", timeline, err)
		}
	})
}
