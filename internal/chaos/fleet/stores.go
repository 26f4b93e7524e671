package fleet

import (
	"context"
	"database/sql"
	"net/url"
	"path/filepath"
	"strconv"

	"github.com/go-sql-driver/mysql" // registers "mysql"

	"github.com/latchkey-go/latchkey/internal/chaos/worker"
	"github.com/latchkey-go/latchkey/internal/mariadbtest"
	"github.com/latchkey-go/latchkey/internal/pgtest"
	"github.com/latchkey-go/latchkey/internal/tidbtest"
	"github.com/latchkey-go/latchkey/sqllock"
)

// startPostgres starts a PostgreSQL server, for advisory locks or for a lease
// table, and perhaps PgBouncer in front of it.
func (f *Fleet) startPostgres(ctx context.Context) error {
	cluster, err := pgtest.Start(pgtest.WithSettings(map[string]string{
		// What was committed must survive the server's death, though not the machine's.
		"synchronous_commit": "on",
		// The default: a larger table, when it is full, makes every look at pg_locks slow.
		"max_locks_per_transaction": "64",
	}))
	if err != nil {
		return err
	}
	f.Cluster, f.backend.close = cluster, cluster.Close
	dsn, err := cluster.CreateDatabase(ctx)
	if err != nil {
		return err
	}
	server, err := url.Parse(dsn)
	if err != nil {
		return err
	}
	if f.DB, err = sql.Open("pgx", dsn); err != nil {
		return err
	}
	f.DB.SetMaxIdleConns(0) // the server is restarted now and then
	f.LockDB = f.DB
	const locks = ` FROM pg_locks WHERE locktype = 'advisory' AND database = (SELECT oid FROM pg_database WHERE datname = current_database())`
	b := f.backend
	b.software, b.version = "PostgreSQL", "SELECT split_part(current_setting('server_version'), ' ', 1)"
	b.admit = []string{"CREATE ROLE %s LOGIN"}
	b.address = func(int) string { return server.Host }
	b.locks = "SELECT (classid::bigint << 32) | objid::bigint" + locks
	b.locksOf = "SELECT count(*)" + locks + " AND pid = %d"
	b.session = "SELECT coalesce(max(pid), 0) FROM pg_stat_activity WHERE datname = current_database() AND application_name = '%s latchkey'"
	b.remains = "SELECT count(*) FROM pg_stat_activity WHERE application_name LIKE 'member%'"
	b.database = sqllock.PostgreSQL
	if f.Store.Leased() {
		b.leased("clock_timestamp()")
	}
	if f.Store == PooledLeases {
		if err := f.StartPooler(); err != nil {
			return err
		}
		b.address = func(int) string { return hostOf(f.Pooler.DSN("")) }
	}
	b.configure = func(m *Member, c *worker.Config) {
		c.Driver, c.Leases = pgtest.Drivers()[m.Number%len(pgtest.Drivers())], f.Store.Leased()
		u := *server
		u.User, u.RawQuery = url.User(m.Role), u.RawQuery+"&application_name="+m.Role
		c.Direct = u.String()
		if u.Host = m.Proxy.Addr(); c.Leases && c.Driver == "pgx" {
			u.RawQuery += "&default_query_exec_mode=exec" // a pooler must not see prepared statements
		}
		c.DSN = u.String()
	}
	return f.Exec(ctx, "ALTER DEFAULT PRIVILEGES GRANT SELECT, INSERT, UPDATE, DELETE ON TABLES TO PUBLIC")
}

// leased sets the queries of a lease table, by the database's clock. An attempt to
// open a Session that fails may leave a row, with 0 statements and no locks.
func (b *backend) leased(now string) {
	b.locks = "SELECT key_id FROM latchkey_locks l JOIN latchkey_sessions s ON s.id = l.session WHERE s.expires > " + now
	b.session = ""
	b.remains = "SELECT count(*) FROM latchkey_sessions WHERE expires > " + now
	b.locksOf = b.remains + " AND statement > 0 AND holder LIKE '%%/%d'"
}

// StartPooler starts PgBouncer, after the one of before was killed. It ends with
// the cluster.
func (f *Fleet) StartPooler() (err error) {
	if f.Pooler != nil {
		if err := f.Pooler.Close(); err != nil {
			return err
		}
	}
	f.Pooler, err = f.Cluster.PgBouncer("transaction", 6)
	return err
}

// hostOf returns the host and the port of a DSN that pgtest has made.
func hostOf(dsn string) string {
	u, err := url.Parse(dsn)
	if err != nil {
		panic("fleet: a DSN of pgtest: " + err.Error())
	}
	return u.Host
}

// startMariaDB starts a MariaDB server, for GET_LOCK or for a lease table.
func (f *Fleet) startMariaDB(ctx context.Context) error {
	// What was committed survives the server's death, though not the machine's.
	server, err := mariadbtest.Start()
	if err != nil {
		return err
	}
	f.MariaDB, f.backend.close = server, server.Close
	database, err := server.CreateDatabase()
	if err != nil {
		return err
	}
	b := f.backend
	b.software, b.version = "MariaDB", "SELECT SUBSTRING_INDEX(VERSION(), '-', 1)"
	b.address = func(int) string { return "127.0.0.1:" + strconv.Itoa(server.Port()) }
	if f.Store == MariaDBLeases {
		b.leased("CAST(UNIX_TIMESTAMP(NOW(6)) * 1000000 AS SIGNED)")
		return f.onMySQL(server.DSN(database), database)
	}
	const locks = " FROM information_schema.metadata_lock_info WHERE lock_type = 'User lock'"
	b.locks = "SELECT CAST(CONV(RIGHT(table_schema, 16), 16, -10) AS SIGNED)" + locks + " AND table_schema LIKE 'latchkey.%.0.%'"
	b.locksOf = "SELECT count(*)" + locks + " AND thread_id = %d"
	b.session = "SELECT coalesce(max(p.id), 0) FROM information_schema.processlist p JOIN (SELECT thread_id" + locks + ") l ON l.thread_id = p.id WHERE p.user = '%s'"
	b.remains = "SELECT count(*) FROM information_schema.processlist WHERE user LIKE 'member%'"
	return f.onMySQL(server.DSN(database), database)
}

// startTiDB starts two TiDB servers on one store. The members use them in turn.
// Every second member's connections have a clock that stands still since 1970, as
// if that of its TiDB server did.
func (f *Fleet) startTiDB(ctx context.Context) error {
	server, err := tidbtest.Start()
	if err != nil {
		return err
	}
	f.TiDB, f.backend.close = server, server.Close
	database, err := server.CreateDatabase()
	if err != nil {
		return err
	}
	b := f.backend
	b.software, b.version = "TiDB", "SELECT SUBSTRING_INDEX(SUBSTRING_INDEX(VERSION(), 'TiDB-v', -1), '-', 1)"
	b.address = func(member int) string { return server.Addr(member % tidbtest.Servers) }
	b.leased("CAST(UNIX_TIMESTAMP(NOW(6)) * 1000000 AS SIGNED)")
	if err := f.onMySQL(server.DSN(0, database), database); err != nil {
		return err
	}
	configure := b.configure
	b.configure = func(m *Member, c *worker.Config) {
		if configure(m, c); m.Number%4 < 2 {
			c.DSN += "?timestamp=1"
		}
	}
	return nil
}

// onMySQL opens the observer's pool with dsn, and says how members use database.
func (f *Fleet) onMySQL(dsn, database string) (err error) {
	if err := mysql.SetLogger(new(mysql.NopLogger)); err != nil { // it would log each fault
		return err
	}
	if f.DB, err = sql.Open("mysql", dsn+"?timeout=2s"); err != nil {
		return err
	}
	f.DB.SetMaxIdleConns(0) // the server is restarted now and then
	f.LockDB = f.DB
	f.backend.database = sqllock.MySQL
	f.backend.admit = []string{"CREATE USER %s", "GRANT ALL ON " + database + ".* TO %s"}
	f.backend.configure = func(m *Member, c *worker.Config) {
		c.Driver, c.Leases = "mysql", f.Store.Leased()
		c.DSN = m.Role + "@tcp(" + m.Proxy.Addr() + ")/" + database
		c.Direct = dsn
	}
	return nil
}

// startSQLite makes two files next to the histories: one for locks, and one for
// the data behind the fence.
func (f *Fleet) startSQLite(ctx context.Context) (err error) {
	const busy = "?_pragma=busy_timeout(1500)" // a writer waits for another one
	locks, data := "file:"+filepath.Join(f.Dir, "locks.db"), "file:"+filepath.Join(f.Dir, "data.db")+busy
	if f.LockDB, err = sql.Open("sqlite", locks+busy); err != nil {
		return err
	}
	if f.DB, err = sql.Open("sqlite", data); err != nil {
		return err
	}
	b := f.backend
	b.database, b.software, b.version = sqllock.SQLite, "SQLite", "SELECT sqlite_version()"
	b.leased("CAST((julianday('now') - 2440587.5) * 86400000.0 AS INTEGER)")
	b.configure = func(_ *Member, c *worker.Config) {
		c.Driver = "sqlite"
		c.DSN, c.Direct = locks, data+"&_txlock=immediate"
	}
	return f.Exec(ctx, "PRAGMA journal_mode = WAL")
}
