package lockwatch_test

import (
	"database/sql"
	"slices"
	"strings"
	"testing"

	"github.com/latchkey-go/latchkey/internal/dbtest"
	"github.com/latchkey-go/latchkey/internal/pgtest"
	"github.com/latchkey-go/latchkey/sqllock"
	"github.com/latchkey-go/latchkey/sqllock/lockwatch"
)

// A role that may create tables in a schema of the search_path cannot make Inspect
// run its code. Inspect reads no views and no partitioned tables. It reads a table
// of that role only if its schema was named.
func TestInspectRunsNobodysCode(t *testing.T) {
	t.Parallel()
	cluster := pgtest.New(t)
	admin := dbtest.Open(t, "pgx", cluster.DSN(""))
	dbtest.Execute(t, admin, "CREATE ROLE mallory LOGIN; GRANT CREATE ON SCHEMA public TO mallory")
	mallory := as(t, "pgx", cluster.DSN(""), "mallory")
	dbtest.Execute(t, mallory, `CREATE FUNCTION public.take() RETURNS bigint LANGUAGE plpgsql AS $$ BEGIN EXECUTE 'ALTER ROLE mallory SUPERUSER'; RETURN 1; END $$`)
	dbtest.Execute(t, mallory, `CREATE VIEW public.latchkey_waits AS SELECT public.take() AS process, 0 AS key_space, 0::bigint AS key_id, 0 AS held_space, 0::bigint AS held_id,
		0 AS waiters, now() AS since, now() AS heartbeat, now() + interval '1 hour' AS expires; GRANT SELECT ON public.latchkey_waits TO PUBLIC`)
	dbtest.Execute(t, mallory, "CREATE TABLE public.latchkey_heartbeats (pid int) PARTITION BY HASH (pid); GRANT SELECT ON public.latchkey_heartbeats TO PUBLIC")
	for _, opts := range [][]lockwatch.InspectOption{nil, {lockwatch.WithSchema("public")}} {
		if s := inspect(t, admin, opts...); s.Heartbeats != lockwatch.TableMissing || s.Waits != lockwatch.TableMissing ||
			s.Leases != lockwatch.TableMissing || strings.Contains(s.String(), "latchkey_locks") {
			t.Errorf("no tables: %s, %s, %s\n%v", s.Heartbeats, s.Waits, s.Leases, s)
		}
	}
	dbtest.Execute(t, mallory, "DROP VIEW public.latchkey_waits; DROP TABLE public.latchkey_heartbeats")
	dbtest.Create(t, mallory, slices.Concat(lockwatch.Schema(sqllock.PostgreSQL), sqllock.Schema(sqllock.PostgreSQL)))
	dbtest.Execute(t, mallory, "GRANT SELECT ON latchkey_heartbeats, latchkey_waits TO PUBLIC")
	s := inspect(t, admin)
	if s.Heartbeats != lockwatch.TableUntrusted || s.Waits != lockwatch.TableUntrusted || s.Leases != lockwatch.TableUntrusted || !strings.Contains(s.String(), "WithSchema") {
		t.Errorf("his tables: %s, %s, %s\n%v", s.Heartbeats, s.Waits, s.Leases, s)
	}
	for name, s := range map[string]*lockwatch.Snapshot{
		"by name": inspect(t, admin, lockwatch.WithSchema("public")), "his own": inspect(t, mallory),
	} {
		if s.Heartbeats != lockwatch.TableRead || s.Waits != lockwatch.TableRead || s.Leases != lockwatch.TableRead {
			t.Errorf("%s: %s, %s, %s", name, s.Heartbeats, s.Waits, s.Leases)
		}
	}
	if n := dbtest.Number(t, admin, "SELECT rolsuper::int FROM pg_roles WHERE rolname = 'mallory'"); n != 0 {
		t.Error("his code has run")
	}
}

// Other roles trust the tables of a superuser and those of the database's owner.
func TestInspectTrusts(t *testing.T) {
	t.Parallel()
	cluster := pgtest.New(t)
	admin := withRegistry(t, "pgx", cluster.DSN(""))
	dbtest.Execute(t, admin, "CREATE ROLE migrator LOGIN; CREATE ROLE other LOGIN; GRANT SELECT ON latchkey_heartbeats, latchkey_waits TO other")
	other := as(t, "pgx", cluster.DSN(""), "other")
	if s := inspect(t, other); s.Heartbeats != lockwatch.TableRead {
		t.Errorf("a superuser's: %s", s.Heartbeats)
	}
	dbtest.Execute(t, admin, "ALTER TABLE latchkey_heartbeats OWNER TO migrator")
	if s := inspect(t, other); s.Heartbeats != lockwatch.TableUntrusted || s.Waits != lockwatch.TableRead {
		t.Errorf("another role's: %s", s.Heartbeats)
	}
	dbtest.Execute(t, admin, "DO $$ BEGIN EXECUTE format('ALTER DATABASE %I OWNER TO migrator', current_database()); END $$")
	if s := inspect(t, other); s.Heartbeats != lockwatch.TableRead {
		t.Errorf("the database's owner's: %s", s.Heartbeats)
	}
}

// Code in the tables that Inspect reads cannot write. Here a policy calls a
// function.
func TestInspectIsReadOnly(t *testing.T) {
	t.Parallel()
	dsn := pgtest.Database(t)
	db := withRegistry(t, "postgres", dsn)
	_, asReader := reader(t, "postgres", dsn, db)
	dbtest.Execute(t, db, `CREATE TABLE written (); GRANT ALL ON written, latchkey_heartbeats, latchkey_waits TO PUBLIC;
		CREATE FUNCTION write() RETURNS boolean LANGUAGE plpgsql AS $$ BEGIN INSERT INTO written DEFAULT VALUES; RETURN true; END $$;
		ALTER TABLE latchkey_waits ENABLE ROW LEVEL SECURITY;
		CREATE POLICY write ON latchkey_waits USING (write());
		INSERT INTO latchkey_waits VALUES (1, 0, 1, -1, 0, 1, now(), now(), now() + interval '1 hour')`)
	if _, err := lockwatch.Inspect(t.Context(), asReader); err == nil {
		t.Error("it has called what writes")
	}
	if n := dbtest.Number(t, db, "SELECT count(*) FROM written"); n != 0 {
		t.Error("it has written")
	}
}

// as returns a pool on dsn that logs in as role.
func as(t *testing.T, driver, dsn, role string) *sql.DB {
	before, rest, _ := strings.Cut(dsn, "://")
	_, rest, _ = strings.Cut(rest, "@")
	return dbtest.Open(t, driver, before+"://"+role+"@"+rest)
}
