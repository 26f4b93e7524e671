package databases

import (
	"context"
	"errors"
	"net/url"
	"strings"
	"testing"

	"github.com/latchkey-go/latchkey/internal/pgtest"
	"github.com/latchkey-go/latchkey/sqllock"
)

// hostileSchema has functions, operators and tables with the names of
// PostgreSQL's own. They say that everything succeeds.
const hostileSchema = `CREATE SCHEMA hostile;
CREATE FUNCTION hostile.pg_try_advisory_lock(bigint) RETURNS bool LANGUAGE sql AS 'SELECT true';
CREATE FUNCTION hostile.pg_try_advisory_lock(int, int) RETURNS bool LANGUAGE sql AS 'SELECT true';
CREATE FUNCTION hostile.pg_try_advisory_lock_shared(bigint) RETURNS bool LANGUAGE sql AS 'SELECT true';
CREATE FUNCTION hostile.pg_try_advisory_xact_lock(bigint) RETURNS bool LANGUAGE sql AS 'SELECT true';
CREATE FUNCTION hostile.pg_advisory_xact_lock(bigint) RETURNS bool LANGUAGE sql AS 'SELECT true';
CREATE FUNCTION hostile.pg_advisory_unlock(bigint) RETURNS bool LANGUAGE sql AS 'SELECT true';
CREATE FUNCTION hostile.pg_advisory_unlock_all() RETURNS void LANGUAGE sql AS 'SELECT';
CREATE FUNCTION hostile.pg_backend_pid() RETURNS int LANGUAGE sql AS 'SELECT 1';
CREATE FUNCTION hostile.pg_is_in_recovery() RETURNS bool LANGUAGE sql AS 'SELECT false';
CREATE FUNCTION hostile.set_config(text, text, bool) RETURNS text LANGUAGE sql AS 'SELECT $2';
CREATE FUNCTION hostile.current_setting(text) RETURNS text LANGUAGE sql AS 'SELECT ''0''::text';
CREATE FUNCTION hostile.clock_timestamp() RETURNS timestamptz LANGUAGE sql AS 'SELECT ''epoch''::timestamptz';
CREATE FUNCTION hostile.now() RETURNS timestamptz LANGUAGE sql AS 'SELECT ''epoch''::timestamptz';
CREATE FUNCTION hostile.string_agg(text, text) RETURNS text LANGUAGE sql AS 'SELECT ''''::text';
CREATE FUNCTION hostile.generate_series(int, int) RETURNS SETOF int LANGUAGE sql AS 'SELECT 1';
CREATE TABLE hostile.pg_locks (locktype text, pid int, granted bool, mode text);
CREATE TABLE hostile.pg_class (oid oid, relname name);
GRANT USAGE ON SCHEMA hostile TO PUBLIC;
GRANT SELECT ON ALL TABLES IN SCHEMA hostile TO PUBLIC`

// Whatever stands before pg_catalog in the search_path of the role, or is done
// at its login, locks exclude.
func TestLongSettingsOfTheCatalog(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name  string
		set   []string
		fails outcome
	}{
		{name: "hostile search_path", set: []string{hostileSchema, "ALTER ROLE %r IN DATABASE %d SET search_path = hostile, pg_catalog, public"}},
		{name: "pg_temp first", set: []string{"ALTER ROLE %r IN DATABASE %d SET search_path = pg_temp, public"}},
		{name: "role at login", set: []string{
			"CREATE ROLE %r_other", "GRANT %r_other TO %r", "GRANT ALL ON ALL TABLES IN SCHEMA public TO %r_other",
			"ALTER ROLE %r IN DATABASE %d SET role = '%r_other'",
		}, fails: outcome{"WithRegistry": "grant it the role that logs in, or pg_read_all_stats"}},
		{name: "role at login that sees itself", set: []string{
			"CREATE ROLE %r_other", "GRANT %r_other TO %r", "GRANT ALL ON ALL TABLES IN SCHEMA public TO %r_other", "GRANT pg_read_all_stats TO %r_other",
			"ALTER ROLE %r IN DATABASE %d SET role = '%r_other'",
		}},
		{name: "session_preload_libraries that is not there", set: []string{"ALTER ROLE %r IN DATABASE %d SET session_preload_libraries = 'nowhere'"}, fails: everyUse("58P01")},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			s := newStage(t, pgtest.Database(t))
			t.Cleanup(func() {
				execute(t, s.admin, "DROP OWNED BY "+s.role)
				if number(t, s.admin, "SELECT count(*) FROM pg_roles WHERE rolname = '"+s.role+"_other'") == 1 {
					execute(t, s.admin, "DROP OWNED BY "+s.role+"_other")
					execute(t, s.admin, "DROP ROLE "+s.role+"_other")
				}
			})
			s.set(t, tt.set...)
			for _, s.driver = range pgtest.Drivers() {
				t.Run(s.driver, func(t *testing.T) { s.tryAll(t, tt.fails, nil) })
			}
		})
	}
}

// everyUse is the outcome of a role that cannot log in.
func everyUse(sentence string) outcome {
	o := outcome{}
	for _, u := range []string{"Session", "WithRegistry", "WithLeaseTable", "TryTx", "PerTx", "OnConn", "Fence", "watermark"} {
		o[u] = sentence
	}
	o["idempotency"] = "status 50"
	return o
}

// In a database of any encoding everything works, with text and bytes of any
// kind.
func TestLongEncodings(t *testing.T) {
	t.Parallel()
	for _, encoding := range []string{"SQL_ASCII", "LATIN1", "EUC_JP", "UTF8"} {
		t.Run(encoding, func(t *testing.T) {
			t.Parallel()
			server := open(t, "pgx", pgtest.Database(t))
			name := ownName("latchkey_" + strings.ToLower(encoding))
			execute(t, server, "CREATE DATABASE "+name+" TEMPLATE template0 LC_COLLATE 'C' LC_CTYPE 'C' ENCODING '"+encoding+"'")
			t.Cleanup(func() { execute(t, server, "DROP DATABASE "+name+" WITH (FORCE)") })
			u, err := url.Parse(pgtest.Database(t))
			must(t, err)
			u.Path = "/" + name
			s := newStage(t, u.String())
			for _, s.driver = range pgtest.Drivers() {
				t.Run(s.driver, func(t *testing.T) { s.tryAll(t, nil, nil) })
			}
		})
	}
}

// A policy that hides the rows of other roles would have a lease table grant a
// key twice. Open rejects it, and says what to change.
func TestLeaseTableUnderRowSecurity(t *testing.T) {
	eachStage(t, func(t *testing.T, s stage) {
		holder := session(t, open(t, "postgres", s.plain), sqllock.WithLeaseTable()) // a superuser's, whom no policy concerns
		lock := mustLock(t, holder, userKey("hidden", 1))
		s.set(t, "ALTER TABLE latchkey_sessions ADD COLUMN owner name DEFAULT current_user",
			"ALTER TABLE latchkey_sessions ENABLE ROW LEVEL SECURITY",
			"CREATE POLICY own ON latchkey_sessions USING (owner = current_user)")
		hidden, err := sqllock.Open(context.Background(), s.unprepared(t), sqllock.WithLeaseTable())
		if err == nil {
			defer hidden.Close()
			if _, err := hidden.TryLock(t.Context(), userKey("hidden", 1)); err == nil && lock.Err() == nil {
				t.Error("a key is held twice")
			}
		}
		if !errors.Is(err, sqllock.ErrNotExclusive) || !strings.Contains(err.Error(), "row-level security") {
			t.Errorf("Open: %v, want ErrNotExclusive that mentions row-level security", err)
		}
		s.set(t, "ALTER TABLE latchkey_sessions DISABLE ROW LEVEL SECURITY")
		again := session(t, s.unprepared(t), sqllock.WithLeaseTable())
		if _, err := again.TryLock(t.Context(), userKey("hidden", 1)); !errors.Is(err, sqllock.ErrHeld) && lock.Err() == nil {
			t.Errorf("TryLock of a held key: %v, want ErrHeld", err)
		}
	})
}
