package databases

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"strings"
	"sync/atomic"
	"testing"

	mysqldriver "github.com/go-sql-driver/mysql"

	"github.com/latchkey-go/latchkey/internal/httptesting"
	"github.com/latchkey-go/latchkey/internal/lockertest"
	"github.com/latchkey-go/latchkey/internal/mariadbtest"
	"github.com/latchkey-go/latchkey/sqllock"
)

// A mysqlTenant is a user with a database on a shared server of MariaDB. Its
// names contain "leaky" as those of a tenant do.
type mysqlTenant struct {
	t              *testing.T
	admin          *sql.DB
	user, database string
	address        string
	password       atomic.Value // string: what the next login uses
	log            httptesting.Logbook
}

func newMySQLTenant(t *testing.T) *mysqlTenant {
	t.Helper()
	config, err := mysqldriver.ParseDSN(mariadbtest.Database(t))
	must(t, err)
	p := &mysqlTenant{t: t, address: config.Addr, user: ownName("leaky"), database: config.DBName}
	config.DBName = "mysql" // the tenant's may be dropped
	p.admin = open(t, "mysql", config.FormatDSN())
	p.password.Store("leaky_first")
	p.create()
	t.Cleanup(func() { execute(t, p.admin, "DROP USER IF EXISTS "+p.user) })
	return p
}

func (p *mysqlTenant) create() {
	p.t.Helper()
	asAdmin("CREATE USER %u IDENTIFIED BY 'leaky_first'")(p)
	asAdmin("GRANT ALL ON %d.* TO %u")(p)
}

// Connect implements driver.Connector.
func (p *mysqlTenant) Connect(ctx context.Context) (driver.Conn, error) {
	config := mysqldriver.NewConfig()
	config.Net, config.Addr, config.DBName = "tcp", p.address, p.database
	config.User, config.Passwd = p.user, p.password.Load().(string)
	connector, err := mysqldriver.NewConnector(config)
	if err != nil {
		return nil, err
	}
	return connector.Connect(ctx)
}

func (p *mysqlTenant) Driver() driver.Driver { return mysqldriver.MySQLDriver{} }

func (p *mysqlTenant) session() *sqllock.Session {
	p.t.Helper()
	db := sql.OpenDB(p)
	p.t.Cleanup(func() { _ = db.Close() })
	return session(p.t, db, sqllock.WithHeartbeat(heartbeat), sqllock.WithLogger(p.log.Logger()))
}

// endConnections ends all connections of the user.
func (p *mysqlTenant) endConnections() {
	p.t.Helper()
	for _, id := range pids(p.t, p.admin, "SELECT id FROM information_schema.processlist WHERE user = ?", p.user) {
		_, _ = p.admin.Exec("KILL ?", id) // it may have gone
	}
}

// What an administrator of MariaDB does to a user costs its Session no lock
// while the connection lives. Without a connection calls say what to change. The
// log has one line for each change. When it is undone, the Session serves again.
func TestLongMySQLServerFaults(t *testing.T) {
	t.Parallel()
	for _, f := range mysqlFaults {
		t.Run(f.name, func(t *testing.T) {
			t.Parallel()
			p := newMySQLTenant(t)
			s := p.session()
			key := sqllock.Namespace("tests").Key("leaky-key")
			lock := mustLock(t, s, key)
			f.do(p)
			before := s.Stats().Exchanges
			lockertest.Eventually(t, "heartbeats", func() bool { return s.Stats().Exchanges >= before+6 || lock.Err() != nil })
			if err := lock.Err(); err != nil || s.Stats().Losses > 0 {
				t.Errorf("the lock: %v; losses: %v", err, s.Stats().LossesBy)
			}
			p.endConnections()
			lockertest.Eventually(t, "the holder is told", func() bool { return lock.Err() != nil })
			err := awaitError(t, s, key, f.refused, f.says)
			f.undo(p)
			awaitGrant(t, "the Session serves again", s, key)
			for _, text := range []string{err.Error(), p.log.String()} {
				for _, secret := range []string{"leaky", p.database, "127.0.0.1"} {
					if strings.Contains(text, secret) {
						t.Errorf("a name is in a text: %s", text)
					}
				}
			}
			if n := strings.Count(p.log.String(), "\n"); n > 4 {
				t.Errorf("%d lines in the log, want few:\n%s", n, p.log.String())
			}
		})
	}
}

// asAdmin returns what an administrator does: %d is the database, and %u the user.
func asAdmin(statement string) func(*mysqlTenant) {
	return func(p *mysqlTenant) {
		p.t.Helper()
		execute(p.t, p.admin, strings.NewReplacer("%d", p.database, "%u", p.user).Replace(statement))
	}
}

var mysqlFaults = []struct {
	name     string
	do, undo func(p *mysqlTenant)
	refused  error
	says     string
}{
	{"MariaDB: user dropped and created again", asAdmin("DROP USER %u"), (*mysqlTenant).create, sqllock.ErrConfig, "rejected the user"},
	{
		"MariaDB: password changed", asAdmin("SET PASSWORD FOR %u = PASSWORD('leaky_next')"),
		func(p *mysqlTenant) { p.password.Store("leaky_next") }, sqllock.ErrConfig, "rejected the user",
	},
	{"MariaDB: ACCOUNT LOCK", asAdmin("ALTER USER %u ACCOUNT LOCK"), asAdmin("ALTER USER %u ACCOUNT UNLOCK"), sqllock.ErrConfig, "locked the account"},
	{
		"MariaDB: MAX_USER_CONNECTIONS 1", asAdmin("ALTER USER %u WITH MAX_USER_CONNECTIONS 1"),
		asAdmin("ALTER USER %u WITH MAX_USER_CONNECTIONS 0"), sqllock.ErrUnavailable, "no connection to spare",
	},
	{"MariaDB: rights revoked", asAdmin("REVOKE ALL ON %d.* FROM %u"), asAdmin("GRANT ALL ON %d.* TO %u"), sqllock.ErrConfig, "no right to this database"},
	{"MariaDB: database dropped and created again", asAdmin("DROP DATABASE %d"), asAdmin("CREATE DATABASE %d"), sqllock.ErrConfig, "no such database"},
}
