package lockwatch_test

import (
	"database/sql"
	"strings"
	"testing"

	"github.com/latchkey-go/latchkey/internal/dbtest"
	"github.com/latchkey-go/latchkey/internal/pgtest"
	"github.com/latchkey-go/latchkey/sqllock"
	"github.com/latchkey-go/latchkey/sqllock/lockwatch"
)

// An ordinary role sees which process holds which key. The Snapshot says what the
// role does not see.
func TestInspectOrdinaryRole(t *testing.T) {
	t.Parallel()
	dsn := pgtest.Database(t)
	db := withRegistry(t, "pgx", dsn)
	role, asReader := reader(t, "pgx", dsn, db)
	key := sqllock.ID(1)
	mustLock(t, session(t, "pgx", dsn), key)
	pid := beat{session: 1, key: key}.write(t, db)

	got := inspect(t, asReader)
	if h := holder(t, got, key); h.Process.PID != pid || !strings.HasSuffix(h.Process.Application, "latchkey") || h.Registration != nil {
		t.Errorf("without rights: %+v", h)
	}
	if got.Heartbeats != lockwatch.TableUnreadable || got.Hidden != 0 {
		t.Errorf("without SELECT: %v, %d hidden", got.Heartbeats, got.Hidden)
	}
	dbtest.Execute(t, db, "GRANT SELECT ON latchkey_heartbeats, latchkey_waits TO "+role)
	if got := inspect(t, asReader); got.Heartbeats != lockwatch.TableRead || got.Hidden != 1 || holder(t, got, key).Registration != nil ||
		!strings.Contains(got.String(), "pg_read_all_stats") {
		t.Errorf("without pg_read_all_stats: %v, %d hidden\n%v", got.Heartbeats, got.Hidden, got)
	}
	dbtest.Execute(t, db, "GRANT pg_read_all_stats TO "+role)
	if got := inspect(t, asReader); got.Hidden != 0 || holder(t, got, key).Registration == nil {
		t.Errorf("with pg_read_all_stats: %d hidden\n%v", got.Hidden, got)
	}
}

// reader returns a new role that owns nothing, and a pool that uses it.
func reader(t *testing.T, driver, dsn string, owner *sql.DB) (role string, asReader *sql.DB) {
	t.Helper()
	role = "reader_" + strings.ToLower(strings.ReplaceAll(t.Name(), "/", "_"))
	dbtest.Execute(t, owner, "CREATE ROLE "+role)
	t.Cleanup(func() {
		dbtest.Execute(t, owner, "DROP OWNED BY "+role)
		dbtest.Execute(t, owner, "DROP ROLE "+role)
	})
	return role, dbtest.Open(t, driver, dsn+"&role="+role)
}
