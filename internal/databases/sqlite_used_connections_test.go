package databases

import (
	"errors"
	"testing"

	"github.com/latchkey-go/latchkey/sqllock"
)

// On SQLite too a Session works if the last user of a pooled connection has
// left a transaction open.
func TestUsedConnectionsOfSQLite(t *testing.T) {
	t.Parallel()
	o := sqlite(t)
	db := open(t, o.Driver, o.DSN)
	db.SetMaxOpenConns(1)
	execute(t, db, "BEGIN")
	s, err := sqllock.Open(t.Context(), db)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	rival := process(t, o)
	for _, begin := range []string{"BEGIN", "BEGIN IMMEDIATE"} {
		execute(t, db, begin)
		lock := mustLock(t, s, sqllock.ID(1))
		if _, err := rival.TryLock(t.Context(), sqllock.ID(1)); !errors.Is(err, sqllock.ErrHeld) {
			t.Errorf("%s: TryLock of what another Session holds: %v, want ErrHeld", begin, err)
		}
		execute(t, db, begin)
		if err := lock.Unlock(); err != nil {
			t.Errorf("%s: Unlock: %v", begin, err)
		}
	}
}
