package databases

import (
	"bytes"
	"database/sql"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/latchkey-go/latchkey/internal/lockertest"
	"github.com/latchkey-go/latchkey/internal/mariadbtest"
	"github.com/latchkey-go/latchkey/internal/pgtest"
	"github.com/latchkey-go/latchkey/sqllock"
)

// A setup is a pool on which Open fails, with an error that says why.
type setup struct {
	name string
	pool func(t *testing.T) *sql.DB
	want error
	says string
}

// onSQLite returns a pool on a small file.
func onSQLite(pragma string) func(*testing.T) *sql.DB {
	return func(t *testing.T) *sql.DB {
		dsn := "file:" + filepath.Join(t.TempDir(), "small.db")
		execute(t, open(t, "sqlite", dsn), "CREATE TABLE t (x)")
		return open(t, "sqlite", dsn+pragma)
	}
}

// onMariaDB returns a pool on the data source name that change makes of a sound
// one.
func onMariaDB(change func(dsn string) string) func(*testing.T) *sql.DB {
	return func(t *testing.T) *sql.DB { return open(t, "mysql", change(mariadbtest.Database(t))) }
}

// server is the part of dsn before the name of the database.
func server(dsn string) string { return dsn[:strings.LastIndexByte(dsn, '/')] }

// asClerk returns a pool of a role that owns no tables. It may use those of its
// owner. %r in a statement stands for the role.
func asClerk(driver string, statements ...string) func(*testing.T) *sql.DB {
	return func(t *testing.T) *sql.DB {
		dsn := pgtest.Database(t)
		owner := open(t, "pgx", dsn)
		role := ownName("clerk")
		execute(t, owner, "CREATE ROLE "+role)
		t.Cleanup(func() {
			execute(t, owner, "DROP OWNED BY "+role)
			execute(t, owner, "DROP ROLE "+role)
		})
		for _, statement := range statements {
			execute(t, owner, strings.ReplaceAll(statement, "%r", role))
		}
		return open(t, driver, unprepared(driver, dsn)+"&role="+role)
	}
}

// leaseTables makes the lease tables, and lets the clerk use them.
func leaseTables() string {
	return strings.Join(sqllock.Schema(sqllock.PostgreSQL), ";\n") +
		";\nGRANT SELECT, INSERT, UPDATE, DELETE ON latchkey_sessions, latchkey_locks, latchkey_tokens TO %r"
}

// setups are those of each dialect that Open rejects, without their tables.
func setups() map[string][]setup {
	leases := []setup{
		{"no right to create tables", asClerk("pgx", "REVOKE CREATE ON SCHEMA public FROM PUBLIC"), sqllock.ErrConfig, "Schema(PostgreSQL)"},
	}
	for _, driver := range pgtest.Drivers() {
		for _, function := range []string{"pg_logical_emit_message", "pg_control_system"} {
			leases = append(leases, setup{driver + ", no right to " + function, asClerk(driver, leaseTables(), revoke(function)), sqllock.ErrConfig, function})
		}
		leases = append(leases, setup{driver + ", tables in two schemas", func(t *testing.T) *sql.DB {
			dsn := pgtest.Database(t)
			owner := open(t, "pgx", dsn)
			create(t, owner, sqllock.Schema(sqllock.PostgreSQL))
			execute(t, owner, "CREATE SCHEMA other; CREATE TABLE other.latchkey_sessions (LIKE public.latchkey_sessions INCLUDING ALL)")
			return open(t, driver, unprepared(driver, dsn)+"&search_path=other,public")
		}, sqllock.ErrNotExclusive, "more than one schema"})
	}
	for _, mode := range []string{"", "&default_query_exec_mode=cache_statement", "&default_query_exec_mode=describe_exec"} {
		leases = append(leases, setup{"a driver that prepares" + mode, func(t *testing.T) *sql.DB { return open(t, "pgx", pgtest.Database(t)+mode) },
			sqllock.ErrNotExclusive, "default_query_exec_mode=exec"})
	}
	return map[string][]setup{
		"SQLite": {
			{"in memory", func(t *testing.T) *sql.DB { return open(t, "sqlite", ":memory:") }, sqllock.ErrNotExclusive, "NewMemory"},
			{"shared memory", func(t *testing.T) *sql.DB { return open(t, "sqlite", "file::memory:?cache=shared") }, sqllock.ErrNotExclusive, "NewMemory"},
			{"read-only", onSQLite("?mode=ro"), sqllock.ErrConfig, "can only be read"},
			{"query_only", onSQLite("?_pragma=query_only(1)"), sqllock.ErrConfig, "query_only"},
			{"full", onSQLite("?_pragma=max_page_count(2)"), sqllock.ErrCapacity, "full"},
			{"damaged", func(t *testing.T) *sql.DB {
				garbage := filepath.Join(t.TempDir(), "garbage.db")
				must(t, os.WriteFile(garbage, bytes.Repeat([]byte("not a database. "), 1024), 0o600))
				return open(t, "sqlite", "file:"+garbage)
			}, sqllock.ErrConfig, "damaged"},
			{"no directory", func(t *testing.T) *sql.DB {
				return open(t, "sqlite", "file:"+filepath.Join(t.TempDir(), "none", "app.db"))
			}, sqllock.ErrUnavailable, "could not be opened"},
		},
		"MariaDB": {
			{"a pool of one", func(t *testing.T) *sql.DB {
				one := open(t, "mysql", mariadbtest.Database(t))
				one.SetMaxOpenConns(1)
				return one
			}, sqllock.ErrConfig, "SetMaxOpenConns"},
			{"no database", onMariaDB(func(dsn string) string { return server(dsn) + "/" }), sqllock.ErrConfig, "name one in the connection string"},
			{"no such database", onMariaDB(func(dsn string) string { return server(dsn) + "/nowhere" }), sqllock.ErrConfig, "no such database"},
			{"no such user", onMariaDB(func(dsn string) string { return strings.Replace(dsn, "root@", "nobody@", 1) }), sqllock.ErrConfig, "the user or the password"},
		},
		"lease table": leases,
	}
}

// Open rejects what cannot lock, with an error that says what to change. The
// error names no host, no database and no file.
func TestRejectedSetups(t *testing.T) {
	t.Parallel()
	for group, list := range setups() {
		var opts []sqllock.Option
		if group == "lease table" {
			opts = append(opts, sqllock.WithLeaseTable())
		}
		for _, tt := range list {
			t.Run(group+"/"+tt.name, func(t *testing.T) {
				t.Parallel()
				s, err := sqllock.Open(t.Context(), tt.pool(t), opts...)
				if err == nil {
					_ = s.Close()
					t.Fatal("Open succeeded")
				}
				if !errors.Is(err, tt.want) || !strings.Contains(err.Error(), tt.says) {
					t.Errorf("Open: %v, want %v that mentions %q", err, tt.want, tt.says)
				}
				for _, private := range []string{".db", "nowhere", "127.0.0.1"} {
					if strings.Contains(err.Error(), private) {
						t.Errorf("the error names a host, a database or a file: %v", err)
					}
				}
			})
		}
	}
}

// What the error of Open advises works: the tables are created for a role that
// may not do so, and the driver is told not to prepare.
func TestRejectedSetupsMended(t *testing.T) {
	t.Parallel()
	for _, mode := range []string{"cache_describe", "exec", "simple_protocol"} {
		db := open(t, "pgx", pgtest.Database(t)+"&default_query_exec_mode="+mode)
		mustUnlock(t, mustLock(t, session(t, db, sqllock.WithLeaseTable()), sqllock.ID(1)))
	}
	clerk := asClerk("pgx", "REVOKE CREATE ON SCHEMA public FROM PUBLIC", leaseTables())(t)
	mustUnlock(t, mustLock(t, session(t, clerk, sqllock.WithLeaseTable()), sqllock.ID(1)))
}

// revoke returns a statement that revokes every function of this name from
// PUBLIC. The arguments of pg_logical_emit_message differ between versions of
// PostgreSQL.
func revoke(function string) string {
	return `DO $$
DECLARE f regprocedure;
BEGIN
	FOR f IN SELECT oid FROM pg_proc WHERE proname = '` + function + `' LOOP
		EXECUTE 'REVOKE EXECUTE ON FUNCTION ' || f || ' FROM PUBLIC';
	END LOOP;
END $$`
}

// Features that only PostgreSQL has return ErrNotExclusive on another database.
// No limiter fails open on that error.
func TestAdvisoryLocksElsewhere(t *testing.T) {
	t.Parallel()
	for _, orders := range []func(*testing.T) lockertest.Orders{sqlite, mariadb} {
		o := orders(t)
		db := open(t, o.Driver, o.DSN)
		tx, conn := mustBegin(t, db), mustConn(t, open(t, o.Driver, o.DSN))
		for name, call := range map[string]func() error{
			"TryTx":  func() error { return sqllock.TryTx(t.Context(), tx, sqllock.ID(1)) },
			"LockTx": func() error { return sqllock.LockTx(t.Context(), tx, sqllock.ID(1), time.Second) },
			"OnConn": func() error { _, err := sqllock.OnConn(conn).TryLock(t.Context(), sqllock.ID(1)); return err },
			"PerTx":  func() error { _, err := sqllock.PerTx(db).TryLock(t.Context(), sqllock.ID(1)); return err },
			"WithDialect(PostgreSQL)": func() error {
				s, err := sqllock.Open(t.Context(), db, sqllock.WithDialect(sqllock.PostgreSQL))
				if err == nil {
					_ = s.Close()
				}
				return err
			},
		} {
			if err := call(); !errors.Is(err, sqllock.ErrNotExclusive) || errors.Is(err, sqllock.ErrUnavailable) {
				t.Errorf("%s: %s: %v, want ErrNotExclusive", o.Driver, name, err)
			}
		}
	}
}
