package postgres

import (
	"strings"
	"testing"

	"github.com/latchkey-go/latchkey/internal/dialect"
	"github.com/latchkey-go/latchkey/internal/pgtest"
)

// A role that may not read pg_locks opens a session, and takes locks.
func TestOpenWithoutPgLocks(t *testing.T) {
	for _, driver := range pgtest.Drivers() {
		t.Run(driver, func(t *testing.T) {
			t.Parallel()
			dsn := pgtest.Database(t)
			admin := openPool(t, driver, dsn)
			for _, statement := range []string{
				"DO $$ BEGIN CREATE ROLE blind LOGIN; EXCEPTION WHEN duplicate_object OR unique_violation THEN END $$",
				"REVOKE ALL ON pg_locks FROM PUBLIC",
			} {
				if _, err := admin.ExecContext(t.Context(), statement); err != nil {
					t.Fatal(err)
				}
			}
			scheme, rest, _ := strings.Cut(dsn, "://")
			_, rest, _ = strings.Cut(rest, "@")
			s := opened(t, driver, scheme+"://blind@"+rest)
			if _, err := s.LockTable(); err == nil {
				t.Fatal("the role may read pg_locks")
			}
			b := &dialect.Batch{Try: []dialect.Key{{Space: dialect.Bigint, ID: 1}}}
			if err := s.Exchange(b); err != nil || len(b.Busy) != 0 {
				t.Errorf("Exchange: %v, busy %v", err, b.Busy)
			}
		})
	}
}
