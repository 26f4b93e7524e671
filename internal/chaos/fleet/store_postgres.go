package fleet

import (
	"context"
	"database/sql"
	"fmt"
	"net/url"
	"strings"

	_ "github.com/jackc/pgx/v5/stdlib" // registers "pgx"

	"github.com/latchkey-go/latchkey/internal/chaos/worker"
	"github.com/latchkey-go/latchkey/internal/pgtest"
	"github.com/latchkey-go/latchkey/sqllock"
)

// A postgresBackend is a PostgreSQL server, for advisory locks or for a lease
// table, and perhaps PgBouncer in front of it.
type postgresBackend struct {
	f      *Fleet
	server *url.URL // DSN of the fleet's database
}

// start implements backend.
func (b *postgresBackend) start(ctx context.Context) (db *sql.DB, err error) {
	// What was committed must survive the server's death, though not the machine's.
	b.f.Cluster, err = pgtest.Start(pgtest.WithSettings(map[string]string{"synchronous_commit": "on"}))
	if err != nil {
		return nil, err
	}
	dsn, err := b.f.Cluster.CreateDatabase(ctx)
	if err != nil {
		return nil, err
	}
	if b.server, err = url.Parse(dsn); err != nil {
		return nil, err
	}
	if db, err = sql.Open("pgx", dsn); err != nil {
		return nil, err
	}
	db.SetMaxIdleConns(0) // the server is restarted now and then
	statements := worker.Tables(sqllock.PostgreSQL)
	if b.f.Services > 0 {
		statements = append(statements, worker.ServicesSchema(sqllock.PostgreSQL)...)
	}
	if b.f.Store.Leased() {
		statements = append(statements, sqllock.Schema(sqllock.PostgreSQL)...)
		statements = append(statements, "GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA public TO PUBLIC")
	}
	for _, statement := range statements {
		if _, err := db.ExecContext(ctx, statement); err != nil {
			return db, fmt.Errorf("schema: %w", err)
		}
	}
	if b.f.Store == PooledLeases {
		err = b.pool()
	}
	return db, err
}

// poolSize is the number of PgBouncer's connections to the server.
const poolSize = 6

// pool starts PgBouncer. It ends with the cluster.
func (b *postgresBackend) pool() (err error) {
	b.f.Pooler, err = b.f.Cluster.PgBouncer("transaction", poolSize)
	return err
}

// admit implements backend.
func (b *postgresBackend) admit(ctx context.Context, m *Member) error {
	_, err := b.f.DB.ExecContext(ctx, "CREATE ROLE "+m.Role+" LOGIN")
	return err
}

// address implements backend.
func (b *postgresBackend) address() string {
	if b.f.Pooler == nil {
		return b.server.Host
	}
	u, err := url.Parse(b.f.Pooler.DSN(""))
	if err != nil {
		panic("fleet: the DSN of PgBouncer: " + err.Error())
	}
	return u.Host
}

// configure implements backend.
func (b *postgresBackend) configure(m *Member, c *worker.Config) {
	drivers := pgtest.Drivers()
	c.Driver = drivers[m.Number%len(drivers)]
	c.Leases = b.f.Store.Leased()
	c.DSN, c.Direct = b.dsn(m, m.Proxy.Addr()), b.dsn(m, b.server.Host)
	if c.Leases && c.Driver == "pgx" {
		c.DSN += "&default_query_exec_mode=exec" // a pooler must not see prepared statements
	}
}

// dsn is m's, for the fleet's database at host.
func (b *postgresBackend) dsn(m *Member, host string) string {
	u := *b.server
	u.Host, u.User = host, url.User(m.Role)
	query := u.Query()
	query.Set("application_name", m.Role)
	u.RawQuery = query.Encode()
	return u.String()
}

// version implements backend. It leaves out what the packager adds.
func (b *postgresBackend) version(ctx context.Context) (version string, err error) {
	if err := b.f.DB.QueryRowContext(ctx, "SHOW server_version").Scan(&version); err != nil {
		return "", err
	}
	version, _, _ = strings.Cut(version, " ")
	return "PostgreSQL " + version, nil
}

const (
	// advisoryLocks are those of the fleet's database.
	advisoryLocks = ` FROM pg_locks WHERE locktype = 'advisory'
		AND database = (SELECT oid FROM pg_database WHERE datname = current_database())`

	// leasedLocks are those whose lease has not passed.
	leasedLocks = ` FROM latchkey_locks l JOIN latchkey_sessions s ON s.id = l.session WHERE s.expires > clock_timestamp()`
)

// locks implements backend. Pairs of numbers are not among the keys: a session
// that waits has its marks there.
func (b *postgresBackend) locks(ctx context.Context) (n int, keys []int64, err error) {
	all, key, single := advisoryLocks, "(classid::bigint << 32) | objid::bigint", "objsubid = 1"
	if b.f.Store.Leased() {
		all, key, single = leasedLocks, "key_id", "key_space = 0"
	}
	if n, err = b.f.number(ctx, "SELECT count(*)"+all); err != nil {
		return 0, nil, err
	}
	keys, err = numbers(ctx, b.f.DB, "SELECT "+key+all+" AND "+single)
	return n, keys, err
}

// locksOf implements backend.
func (b *postgresBackend) locksOf(ctx context.Context, pid int) (int, error) {
	if b.f.Store.Leased() {
		return b.f.number(ctx, "SELECT count(*) FROM latchkey_sessions WHERE expires > clock_timestamp() AND holder LIKE $1", holder(pid))
	}
	return b.f.number(ctx, "SELECT count(*)"+advisoryLocks+" AND pid = $1", pid)
}

// remains implements backend. It counts connections and, of lease tables,
// sessions. The connections of PgBouncer stay.
func (b *postgresBackend) remains(ctx context.Context) (int, error) {
	query := "SELECT count(*) FROM pg_stat_activity WHERE application_name LIKE 'member%'"
	switch b.f.Store {
	case Leases:
		query = "SELECT (" + query + ") + (SELECT count(*) FROM latchkey_sessions WHERE expires > clock_timestamp())"
	case PooledLeases:
		query = "SELECT count(*) FROM latchkey_sessions WHERE expires > clock_timestamp()"
	}
	return b.f.number(ctx, query)
}

// close implements backend.
func (b *postgresBackend) close() error {
	if b.f.Cluster == nil {
		return nil
	}
	return b.f.Cluster.Close()
}
