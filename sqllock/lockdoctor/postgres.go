package lockdoctor

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/latchkey-go/latchkey/internal/bound"
	"github.com/latchkey-go/latchkey/internal/dialect"
	"github.com/latchkey-go/latchkey/internal/dialect/errcode"
	"github.com/latchkey-go/latchkey/internal/dialect/leasetable"
	"github.com/latchkey-go/latchkey/internal/dialect/postgres"
	"github.com/latchkey-go/latchkey/sqllock"
)

// postgresChecks are the checks of PostgreSQL. Those that ask the server come
// after exclusion, which finds out whether questions are harmless.
var postgresChecks = []check{
	{name: "driver", examine: postgresDriver},
	{name: "exclusion", examine: postgresExclusion},
	{name: "socket", examine: socket},
	{name: "version", examine: postgresVersion, needs: (*subject).learn},
	{name: "primary", examine: postgresPrimary, needs: (*subject).learn},
	{name: "timeouts", examine: postgresTimeouts, needs: (*subject).learn},
	{name: "lock-table", examine: postgresLockTable},
	{name: "connections", examine: postgresConnections, needs: (*subject).learn},
	{name: "clock", examine: clock("SELECT (EXTRACT(epoch FROM pg_catalog.clock_timestamp()) * 1000000)::bigint")},
	{name: "tables", examine: tables, needs: (*subject).find},
	{name: "rights", examine: postgresRights, needs: (*subject).find},
	{name: "durability", examine: postgresDurability, needs: (*subject).find},
	{name: "registry", examine: postgresRegistry, needs: (*subject).find},
	{name: "secrets", examine: secrets, needs: (*subject).find},
	{name: "neighbours", examine: postgresNeighbours},
}

// proofTimeout bounds each question of the proof that locks exclude.
const proofTimeout = 2 * time.Second

// postgresExclusion makes the proof that Open makes.
func postgresExclusion(ctx context.Context, s *subject) (fine string, err error) {
	if s.leaseTable {
		return "", skip("the rows of a lease table exclude behind any pooler")
	}
	if err := s.hasTwo(); err != nil {
		return "", err
	}
	err = postgres.Dialect{}.Prove(ctx, s.db, dialect.Settings{Proof: bound.Of(proofTimeout)})
	switch state := errcode.SQLState(err); {
	case state == tooManyConnections:
		// The proof has closed the connection that it had, and the server counts it
		// until its process ends. The next checks would not get one before that.
		for range 100 {
			if conn, err := s.lend(ctx); err == nil {
				_ = conn.Close()
				break
			}
			if sleep(ctx, bound.Of(10*time.Millisecond)) != nil {
				break
			}
		}
	case state == errcode.Forbidden:
		if askErr := s.revoked(ctx); askErr == nil && len(s.findings) > 0 {
			err = nil
		}
	case postgres.IsBehindPooler(err):
		conn, connErr := s.lend(ctx)
		if connErr == nil {
			connErr = errors.Join(leasetable.Unprepared(ctx, conn), conn.Close())
		}
		if connErr != nil { // a question might carry out a statement of another client
			s.silent = mixedUp
		}
		if s.mayKeepRows() { // Open has refused any other Session
			s.leaseTable = true
			err = skip("the Sessions keep their locks in a lease table, which excludes behind any pooler")
		}
	}
	return "locks on one connection exclude another one", err
}

// A postgresServer is what a server says about itself.
type postgresServer struct {
	version                string
	number                 int
	standby                bool
	client, role, database connectionLimit
	settings               map[string]setting
}

// A setting is a row of pg_settings, or a variable of MySQL.
type setting struct{ name, value, source string }

// learn asks the server for what several checks need. It asks once. Ordinary
// roles see the connections of other roles, too, with their database and user.
func (s *subject) learn(ctx context.Context) error {
	if s.server.settings != nil {
		return nil
	}
	is := postgresServer{
		client:   connectionLimit{of: "the server", fix: "Raise max_connections and restart the server, or close connections of other clients."},
		role:     connectionLimit{of: "the role", fix: "ALTER ROLE … CONNECTION LIMIT -1; as a superuser, with the name of this role, or a limit with room for the fleet"},
		database: connectionLimit{of: "the database", fix: "ALTER DATABASE … CONNECTION LIMIT -1; with the name of this database"},
	}
	own := s.own()
	err := s.read(ctx, `WITH activity AS MATERIALIZED (SELECT pid, datid, usesysid FROM pg_catalog.pg_stat_get_activity(NULL) WHERE datid <> 0),
		me AS (SELECT datid, usesysid FROM activity WHERE pid = pg_catalog.pg_backend_pid())
		SELECT pg_catalog.current_setting('server_version'), pg_catalog.current_setting('server_version_num')::int, pg_catalog.pg_is_in_recovery(),
			pg_catalog.current_setting('max_connections')::int - CASE WHEN r.rolsuper THEN 0 ELSE
				pg_catalog.current_setting('superuser_reserved_connections')::int
				+ coalesce(nullif(pg_catalog.current_setting('reserved_connections', true), '')::int, 0) END,
			(SELECT pg_catalog.count(*) FROM activity),
			CASE WHEN r.rolsuper THEN -1 ELSE r.rolconnlimit END, (SELECT pg_catalog.count(*) FROM activity WHERE usesysid = me.usesysid),
			CASE WHEN r.rolsuper THEN -1 ELSE d.datconnlimit END, (SELECT pg_catalog.count(*) FROM activity WHERE datid = me.datid)
		FROM me JOIN pg_catalog.pg_roles AS r ON r.oid = me.usesysid JOIN pg_catalog.pg_database AS d ON d.oid = me.datid`,
		&is.version, &is.number, &is.standby, &is.client.most, &is.client.used, &is.role.most, &is.role.used, &is.database.most, &is.database.used)
	if err != nil {
		return err
	}
	for _, l := range []*connectionLimit{&is.client, &is.role, &is.database} {
		l.used -= own
	}
	settings := map[string]setting{}
	err = s.each(ctx, "SELECT name, setting, source FROM pg_catalog.pg_settings", func(scan func(...any) error) error {
		var is setting
		err := scan(&is.name, &is.value, &is.source)
		settings[is.name] = is
		return err
	})
	if err == nil {
		is.settings = settings
		s.server = is
	}
	return err
}

// origins says in words where the value of a setting comes from, and how to take
// it back there. NAME stands for the setting.
var origins = map[string]struct{ words, reset string }{
	"user":          {"set for the role", "ALTER ROLE CURRENT_USER RESET NAME; as this role"},
	"database user": {"set for the role", "ALTER ROLE CURRENT_USER IN DATABASE … RESET NAME; as this role, with the name of this database"},
	"database":      {"set for the database", "ALTER DATABASE … RESET NAME; with the name of this database"},
	"client":        {"set by the connection string", "Take NAME out of the connection string."},
	"session":       {"set on a connection of the pool, or leaked by a pooler", "Use SET LOCAL NAME in a transaction, so that a pooled connection does not keep it."},
}

func (is setting) origin() (words, reset string) {
	o, ok := origins[is.source]
	if !ok {
		o.words, o.reset = "set for the server", "ALTER SYSTEM RESET NAME; or correct postgresql.conf, then SELECT pg_reload_conf();"
	}
	return o.words, strings.ReplaceAll(o.reset, "NAME", is.name)
}

// postgresVersion checks that the server has idle_session_timeout, by which it
// frees the locks of a process that is gone.
func postgresVersion(_ context.Context, s *subject) (fine string, err error) {
	if s.server.number < 140000 && !s.leaseTable {
		s.wrong("the server is older than PostgreSQL 14, and cannot free the locks of a dead process", "Upgrade the server to PostgreSQL 14 or newer.")
	}
	return "PostgreSQL " + s.server.version, nil
}

// postgresPrimary checks that the server is the primary and that transactions
// may write.
func postgresPrimary(_ context.Context, s *subject) (fine string, err error) {
	is := s.server.settings["default_transaction_read_only"]
	words, reset := is.origin()
	if strings.HasPrefix(reset, "ALTER") {
		reset = "SET default_transaction_read_only = off;\n" + reset
	}
	switch {
	case s.server.standby:
		s.wrong("this server is a standby, which grants locks on its own", "Let the connection string lead to the primary: add target_session_attrs=read-write.")
	case is.value == "on" && s.leaseTable:
		s.wrong("transactions are read-only here ("+words+"), and a lease table must be written to", reset)
	case is.value == "on":
		s.warn("transactions are read-only here ("+words+"): Fence, watermarks and the service's own writes fail", reset)
	}
	return "the server is a primary, and takes writes", nil
}

// postgresTimeouts checks the timeouts that a new connection has. A Session sets
// its own on the connections of its locks. So these matter before that, while a
// Session proves that locks exclude, and for locks in transactions and on
// connections of the caller.
func postgresTimeouts(_ context.Context, s *subject) (fine string, err error) {
	const ms = time.Millisecond
	return s.timeouts(s.server.settings, []timeout{
		{"statement_timeout", ms, time.Second, "statements end before a Session has connected, and before LockTx has waited"},
		{"lock_timeout", ms, 100 * ms, "LockTx gives up almost at once"},
		{"idle_session_timeout", ms, s.lease, "the server ends pooled connections, with the locks of OnConn, sooner than a lease would"},
		{"idle_in_transaction_session_timeout", ms, s.lease, "the server ends the transactions of PerTx and Fence sooner than a lease would"},
		{"transaction_timeout", ms, s.lease, "the server ends transactions, with the locks of TryTx, LockTx and PerTx, sooner than a lease would"},
	}), nil
}

// revoked notes a finding if the role may not call a function by which a Session
// takes locks or gives them back.
func (s *subject) revoked(ctx context.Context) error {
	const query = `SELECT coalesce(pg_catalog.string_agg(p.oid::pg_catalog.regprocedure::text, ', ' ORDER BY p.oid), '') FROM pg_catalog.pg_proc AS p
		WHERE p.pronamespace = 'pg_catalog'::pg_catalog.regnamespace AND NOT pg_catalog.has_function_privilege(p.oid, 'EXECUTE')
		AND (p.proname LIKE 'pg\_try\_advisory\_%' OR p.proname LIKE 'pg\_advisory\_unlock%' OR p.proname LIKE 'pg\_advisory\_xact\_%' OR p.proname = 'set_config')`
	var functions string
	err := s.read(ctx, query, &functions)
	if err == nil && functions != "" {
		s.wrong("the role may not call "+functions, "GRANT EXECUTE ON FUNCTION "+functions+" TO …; with this role")
	}
	return err
}

// A timeout of the server does harm if it is shorter than least.
type timeout struct {
	name        string
	unit, least time.Duration
	harm        string
}

// timeouts judges the settings that a new connection has. Those that are 0, or
// that the server does not have, do no harm.
func (s *subject) timeouts(settings map[string]setting, limits []timeout) (fine string) {
	for _, l := range limits {
		is := settings[l.name]
		number, err := strconv.ParseFloat(is.value, 64)
		lasts := time.Duration(number * float64(l.unit))
		if err != nil || lasts <= 0 || lasts >= l.least {
			continue
		}
		words, fix := is.origin()
		if s.dialect == sqllock.MySQL {
			words, fix = "set for the server, or by the connection string", "SET GLOBAL "+l.name+" to more than the lease, in the server's configuration too; or take it out of the connection string."
		}
		s.warn(fmt.Sprintf("%s is %v (%s): %s", l.name, lasts, words, l.harm), fix)
	}
	return fmt.Sprintf("no timeout of a new connection is shorter than what locks need (lease %v)", s.lease)
}
