package leasetable

import (
	"cmp"
	"context"
	"database/sql"
	"fmt"
	"math/rand/v2"
	"slices"

	"github.com/latchkey-go/latchkey/internal/dialect"
	"github.com/latchkey-go/latchkey/internal/dialect/dbconn"
	"github.com/latchkey-go/latchkey/internal/dialect/errcode"
	"github.com/latchkey-go/latchkey/internal/dialect/postgres"
)

// prove checks that the tables can be used through this pool and driver,
// creates missing tables, and fills in the fields of t.
//
// It sends Execs without arguments, which no driver prepares, until it knows
// that the driver is safe behind a pooler.
func (t *postgresTables) prove(ctx context.Context) error {
	err := t.pool.Once(ctx, func(conn *sql.Conn) error {
		for _, step := range []func(context.Context, *sql.Conn) error{t.server, Unprepared, fit, t.makeTables, t.look, t.findTokens} {
			if err := step(ctx, conn); err != nil {
				dbconn.Destroy(conn, "") // a search_path that a person corrects counts for new connections
				return err
			}
		}
		return nil
	})
	switch state := errcode.SQLState(err); {
	case state == errcode.ReadOnly && t.genuine: // it is no standby
		return dialect.Misconfigured("transactions are read-only here, and the lease tables must be written to: set default_transaction_read_only=off for the role, or in the connection string")
	case state == errcode.ReadOnly:
		return dialect.Refuse("this server, or this role, can only read: connect to the primary (target_session_attrs=read-write)")
	case state == errcode.InvalidSchema:
		return dialect.Misconfigured("the search_path names no schema in which the lease tables could be: set it for the role, or in the connection string")
	case state == errcode.Forbidden:
		return errRights
	}
	return err
}

// errRights is the failure of a role that lacks a right to the tables.
var errRights = dialect.Misconfigured("the role may not use or create the lease tables: run the statements of Schema(PostgreSQL) once as their owner," +
	" and grant it SELECT, INSERT, UPDATE and DELETE, and USAGE on their schema")

// server checks that the server can be written to, and finds out whether it is
// PostgreSQL itself.
func (t *postgresTables) server(ctx context.Context, conn *sql.Conn) (err error) {
	t.genuine, err = postgres.IsGenuine(ctx, conn)
	if err != nil || !t.genuine {
		t.pool.Bound = t.timeout
		return err
	}
	standby, err := postgres.Holds(ctx, conn, "pg_catalog.pg_is_in_recovery()")
	if err == nil && standby {
		err = dialect.Refuse(postgres.OnStandby)
	}
	return err
}

// Unprepared rejects a driver that sends a query without arguments in two
// steps, or prepares it under a name.
//
// Behind a transaction pooler the second step may reach another server process,
// where the name belongs to another client. Also, each statement has another
// text, so the server would keep all of them.
func Unprepared(ctx context.Context, conn *sql.Conn) error {
	if mode, known := dbconn.PgxQueryMode(conn); known {
		if !slices.Contains([]string{"exec", "simple protocol", "cache describe"}, mode) {
			return dialect.Refuse("pgx prepares its statements in the mode that it is in, and a transaction pooler may run another client's instead: set default_query_exec_mode=exec (or simple_protocol) in its connection string")
		}
		return nil
	}
	// In a transaction, so that both statements meet the same server process.
	if _, err := conn.ExecContext(ctx, "BEGIN"); err != nil {
		return err
	}
	name := fmt.Sprintf("latchkey%d", rand.Int64())
	var one int
	err := conn.QueryRowContext(ctx, "SELECT 1 /* "+name+" */").Scan(&one)
	var kept bool
	if err == nil {
		kept, err = postgres.Holds(ctx, conn, "EXISTS (SELECT 1 FROM pg_catalog.pg_prepared_statements WHERE statement LIKE '%"+name[:10]+"' || '"+name[10:]+"%')")
	}
	if _, rollback := conn.ExecContext(ctx, "ROLLBACK"); err == nil {
		err = rollback
	}
	if err == nil && kept {
		err = dialect.Refuse("the driver prepares queries that have no arguments, which is not safe behind a transaction pooler: have it use the simple protocol")
	}
	return err
}

// fit checks the tables that are there, before any is created.
func fit(ctx context.Context, conn *sql.Conn) error {
	return dialect.CheckTables(ctx, conn, "postgres", "", PostgreSQLSchema(), "Schema(PostgreSQL)")
}

// makeTables creates the missing tables. Of two processes that do so at the
// same moment, one may fail and then looks again.
func (t *postgresTables) makeTables(ctx context.Context, conn *sql.Conn) error {
	raced := []string{"23505", "42P07", "42710", "40001", "XX000"}
	for attempt := 1; ; attempt++ {
		there, err := postgres.Holds(ctx, conn, tablesExist)
		if err != nil {
			return err
		}
		statements := leaseTables(postgresTypes)
		if there {
			statements = statements[len(statements)-1:] // the row: the process that made the table may have died before
		} else if t.genuine { // other systems may not understand the question
			if hidden, err := postgres.Holds(ctx, conn, tablesHidden); err != nil || hidden {
				return cmp.Or(err, errRights)
			}
		}
		if err = execAll(ctx, conn, statements); err == nil || !slices.Contains(raced, errcode.SQLState(err)) || attempt == 10 {
			return err
		}
	}
}

// tablesExist holds if the search_path finds all tables that a session uses.
const tablesExist = `pg_catalog.to_regclass('latchkey_sessions') IS NOT NULL AND pg_catalog.to_regclass('latchkey_locks') IS NOT NULL
	AND pg_catalog.to_regclass('latchkey_tokens') IS NOT NULL`

// rowsAreHidden holds if policies of a table apply to the role.
const rowsAreHidden = `pg_catalog.row_security_active(pg_catalog.to_regclass('latchkey_sessions')::oid) OR pg_catalog.row_security_active(pg_catalog.to_regclass('latchkey_locks')::oid)
	OR pg_catalog.row_security_active(pg_catalog.to_regclass('latchkey_tokens')::oid)`

// tablesHidden holds if tables are in a schema of the search_path that the role
// may not use. to_regclass passes over that schema. If the tables were created
// in the next one, other instances would go on to use those of the first.
const tablesHidden = `EXISTS (SELECT FROM pg_catalog.pg_class AS c JOIN pg_catalog.pg_namespace AS n ON n.oid = c.relnamespace
	WHERE c.relname = 'latchkey_sessions' AND NOT pg_catalog.has_schema_privilege(n.oid, 'USAGE') AND n.nspname IN (
		SELECT CASE name WHEN '$user' THEN CURRENT_USER::text ELSE name END
		FROM (SELECT CASE WHEN s LIKE '"%' THEN pg_catalog.btrim(s, '"') ELSE pg_catalog.lower(s) END AS name FROM pg_catalog.regexp_split_to_table(
			pg_catalog.btrim(pg_catalog.current_setting('search_path')), '\s*,\s*') AS s) AS path))`

// execAll sends statements one after the other.
func execAll(ctx context.Context, conn *sql.Conn, statements []string) error {
	for _, s := range statements {
		if _, err := conn.ExecContext(ctx, s); err != nil {
			return err
		}
	}
	return nil
}

// look finds the schema of the tables, so that the search_path has no effect
// from then on.
func (t *postgresTables) look(ctx context.Context, conn *sql.Conn) error {
	var together, hides bool
	err := conn.QueryRowContext(ctx, `SELECT pg_catalog.min(pg_catalog.quote_ident(n.nspname)) || '.', pg_catalog.count(DISTINCT n.nspname) = 1 FROM pg_catalog.pg_class AS c JOIN pg_catalog.pg_namespace AS n ON n.oid = c.relnamespace
		WHERE c.oid IN (pg_catalog.to_regclass('latchkey_sessions')::oid, pg_catalog.to_regclass('latchkey_locks')::oid, pg_catalog.to_regclass('latchkey_tokens')::oid)`).
		Scan(&t.schema, &together)
	if err == nil && together && t.genuine {
		hides, err = postgres.Holds(ctx, conn, rowsAreHidden)
	}
	switch {
	case err != nil:
		return err
	case !together:
		return dialect.Refuse("the lease tables are found in more than one schema of the search_path: leave those of one schema, with all that use them on the same search_path")
	case hides:
		return dialect.Refuse("row-level security hides rows of the lease tables from this role, so that it could take a key that another role holds: disable it on these tables")
	}
	return nil
}

// findTokens finds out where tokens come from, and draws one.
func (t *postgresTables) findTokens(ctx context.Context, conn *sql.Conn) (err error) {
	if t.genuine {
		t.logged, err = postgres.Holds(ctx, conn, "NOT "+postgres.OnAurora)
	}
	if err != nil || !t.logged {
		return err
	}
	_, err = conn.ExecContext(ctx, "SELECT pg_catalog.pg_logical_emit_message(true, 'latchkey', ''), system_identifier FROM pg_catalog.pg_control_system()")
	if errcode.SQLState(err) == errcode.Forbidden {
		err = dialect.Misconfigured("the role may not call pg_logical_emit_message or pg_control_system, from which the tokens of Fence come: grant it EXECUTE on both")
	}
	return err
}
