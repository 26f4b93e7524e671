package databases

import (
	"context"
	"crypto/rand"
	"database/sql"
	"database/sql/driver"
	"errors"
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
	p := &mysqlTenant{t: t, address: config.Addr, user: "leaky_" + strings.ToLower(rand.Text()[:12]), database: config.DBName}
	config.DBName = "mysql" // the tenant's may be dropped
	p.admin = open(t, "mysql", config.FormatDSN())
	p.password.Store("leaky_first")
	p.create()
	t.Cleanup(func() { execute(t, p.admin, "DROP USER IF EXISTS "+p.user) })
	return p
}

func (p *mysqlTenant) create() {
	p.t.Helper()
	execute(p.t, p.admin, "CREATE USER "+p.user+" IDENTIFIED BY 'leaky_first'")
	execute(p.t, p.admin, "GRANT ALL ON "+p.database+".* TO "+p.user)
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
	rows, err := p.admin.Query("SELECT id FROM information_schema.processlist WHERE user = ?", p.user)
	must(p.t, err)
	defer rows.Close()
	for rows.Next() {
		var id int
		must(p.t, rows.Scan(&id))
		_, _ = p.admin.Exec("KILL ?", id) // it may have gone
	}
	must(p.t, rows.Err())
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
			var err error
			lockertest.Eventually(t, "calls say "+f.says, func() bool {
				_, err = s.TryLock(t.Context(), key)
				return err != nil && strings.Contains(err.Error(), f.says)
			})
			if !errors.Is(err, f.refused) {
				t.Errorf("TryLock: %v, want %v", err, f.refused)
			}
			t.Log(err)
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

var mysqlFaults = []struct {
	name     string
	do, undo func(p *mysqlTenant)
	refused  error
	says     string
}{
	{
		name: "MariaDB: user dropped and created again",
		do:   func(p *mysqlTenant) { execute(p.t, p.admin, "DROP USER "+p.user) },
		undo: func(p *mysqlTenant) { p.create() }, refused: sqllock.ErrConfig, says: "rejected the user",
	},
	{
		name: "MariaDB: password changed",
		do:   func(p *mysqlTenant) { execute(p.t, p.admin, "SET PASSWORD FOR "+p.user+" = PASSWORD('leaky_next')") },
		undo: func(p *mysqlTenant) { p.password.Store("leaky_next") }, refused: sqllock.ErrConfig, says: "rejected the user",
	},
	{
		name: "MariaDB: ACCOUNT LOCK",
		do:   func(p *mysqlTenant) { execute(p.t, p.admin, "ALTER USER "+p.user+" ACCOUNT LOCK") },
		undo: func(p *mysqlTenant) { execute(p.t, p.admin, "ALTER USER "+p.user+" ACCOUNT UNLOCK") }, refused: sqllock.ErrConfig, says: "locked the account",
	},
	{
		name: "MariaDB: MAX_USER_CONNECTIONS 1",
		do:   func(p *mysqlTenant) { execute(p.t, p.admin, "ALTER USER "+p.user+" WITH MAX_USER_CONNECTIONS 1") },
		undo: func(p *mysqlTenant) { execute(p.t, p.admin, "ALTER USER "+p.user+" WITH MAX_USER_CONNECTIONS 0") }, refused: sqllock.ErrUnavailable, says: "no connection to spare",
	},
	{
		name: "MariaDB: rights revoked",
		do:   func(p *mysqlTenant) { execute(p.t, p.admin, "REVOKE ALL ON "+p.database+".* FROM "+p.user) },
		undo: func(p *mysqlTenant) { execute(p.t, p.admin, "GRANT ALL ON "+p.database+".* TO "+p.user) }, refused: sqllock.ErrConfig, says: "no right to this database",
	},
	{
		name: "MariaDB: database dropped and created again",
		do:   func(p *mysqlTenant) { execute(p.t, p.admin, "DROP DATABASE "+p.database) },
		undo: func(p *mysqlTenant) { execute(p.t, p.admin, "CREATE DATABASE "+p.database) }, refused: sqllock.ErrConfig, says: "no such database",
	},
}
