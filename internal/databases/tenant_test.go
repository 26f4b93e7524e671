package databases

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"fmt"
	"strings"
	"time"

	"github.com/latchkey-go/latchkey/internal/dbtest"
	"github.com/latchkey-go/latchkey/internal/lockertest"
	"github.com/latchkey-go/latchkey/sqllock"
)

// A login logs the tenant in. Each takes the password of this moment, as one
// from a secret store does.
type login struct {
	*tenant
	unprepared bool // pgx prepares nothing
}

// Connect implements driver.Connector.
func (p login) Connect(ctx context.Context) (driver.Conn, error) {
	dsn := strings.Replace(p.server.cluster.DSN(p.database), "postgres@", p.role+":"+p.password.Load().(string)+"@", 1)
	if p.unprepared {
		dsn = inExecMode(dsn)
	}
	return connector(p.t, lockertest.Orders{Driver: p.driver, DSN: dsn}).Connect(ctx)
}

// Driver is asked for by database/sql's Driver method alone.
func (p login) Driver() driver.Driver { return nil }

// heartbeat is that of a tenant's Sessions.
const heartbeat = 50 * time.Millisecond

// session opens a Session of the role, with a pool of its own.
func (p *tenant) session(opts ...sqllock.Option) *sqllock.Session {
	p.t.Helper()
	return session(p.t, p.pool(), append([]sqllock.Option{sqllock.WithLogger(p.log.Logger()),
		sqllock.WithHeartbeat(heartbeat), sqllock.WithRegistry("kit")}, opts...)...)
}

// leaseSession is session with a lease table.
func (p *tenant) leaseSession(opts ...sqllock.Option) *sqllock.Session {
	p.t.Helper()
	return session(p.t, p.open(login{p, p.driver == "pgx"}), append([]sqllock.Option{sqllock.WithLogger(p.log.Logger()),
		sqllock.WithHeartbeat(heartbeat), sqllock.WithLeaseTable()}, opts...)...)
}

func (p *tenant) pool() *sql.DB { return p.open(login{tenant: p}) }

func (p *tenant) open(l login) *sql.DB {
	db := sql.OpenDB(l)
	p.t.Cleanup(func() { _ = db.Close() })
	db.SetMaxOpenConns(5)
	return db
}

// stage returns the stage of the role, with a pool of its own.
func (p *tenant) stage() stage {
	return stage{driver: p.driver, role: p.role, base: p.database, shared: p.pool()}
}

// key returns a key that no text may show.
func (p *tenant) key(n int) sqllock.Key {
	return sqllock.Namespace("tests").Key(fmt.Sprint("leaky-key-", n))
}

type grant struct {
	lock *sqllock.Lock
	err  error
}

// await waits for key, until the end of the test.
func (p *tenant) await(s *sqllock.Session, key sqllock.Key) <-chan grant {
	granted := make(chan grant, 1)
	go func() {
		lock, err := s.Lock(p.t.Context(), key)
		granted <- grant{lock, err}
	}()
	lockertest.Eventually(p.t, "a call waits", func() bool { return s.Stats().Waiting == 1 })
	return granted
}

func (p *tenant) mustBeGranted(waiting <-chan grant) {
	p.t.Helper()
	lockertest.Eventually(p.t, "the waiter gets the key", func() bool { return len(waiting) == 1 })
	g := <-waiting
	if g.err != nil {
		p.t.Fatalf("Lock: %v", g.err)
	}
	if err := g.lock.Unlock(); err != nil {
		p.t.Errorf("Unlock: %v", err)
	}
}

// registered waits until lock is in the registry.
func (p *tenant) registered(lock *sqllock.Lock) {
	p.t.Helper()
	db := dbtest.Open(p.t, "pgx", p.server.cluster.DSN(p.database))
	lockertest.Eventually(p.t, "the lock is in the registry", func() bool {
		return lock.Err() != nil || number(p.t, db, "SELECT count(*) FROM kit.latchkey_heartbeats") > 0
	})
}

// beats waits until the lease of s was renewed several times, while it holds
// lock or none.
func (p *tenant) beats(s *sqllock.Session, lock *sqllock.Lock) {
	p.t.Helper()
	before, renewals := s.Stats().LeaseRemaining, 0
	lockertest.Eventually(p.t, "the lease is renewed", func() bool {
		remaining := s.Stats().LeaseRemaining
		if remaining > before {
			renewals++
		}
		before = remaining
		return renewals >= 6 || lock != nil && lock.Err() != nil
	})
}

// fails waits until TryLock of s returns want with a text that contains says.
func (p *tenant) fails(s *sqllock.Session, want error, says string) {
	p.t.Helper()
	p.wantDiscreet(awaitError(p.t, s, p.key(3), want, says).Error())
}

// serves waits until s grants locks.
func (p *tenant) serves(s *sqllock.Session) {
	p.t.Helper()
	awaitGrant(p.t, "the Session serves again", s, p.key(3))
}

func (p *tenant) wantDiscreet(text string) {
	p.t.Helper()
	for _, secret := range []string{"leaky", "127.0.0.1"} {
		if strings.Contains(text, secret) {
			p.t.Errorf("a name is in a text: %s", text)
		}
	}
}

// wantQuietLog checks that the log has a line for each change that n Sessions
// have seen, and no more.
func (p *tenant) wantQuietLog(n int) {
	p.t.Helper()
	text := p.log.String()
	p.wantDiscreet(text)
	for message, most := range map[string]int{"connection lost": n, "cannot connect": 2 * n, "connected again": n,
		"cannot be written": 3 * n, "is written again": n} { // the reason may change; the registry: before the loss, and when and after it connects
		if got := strings.Count(text, message); got > most {
			p.t.Errorf("%d lines of %q, want %d at the most:\n%s", got, message, most, text)
		}
	}
	if got := strings.Count(text, "\n"); got > 7*n {
		p.t.Errorf("%d lines, want few:\n%s", got, text)
	}
}

// fence writes in a transaction of the role that lock fences.
func (p *tenant) fence(db *sql.DB, lock *sqllock.Lock) error {
	tx, err := db.BeginTx(p.t.Context(), nil)
	if err != nil {
		return err
	}
	defer func() { _ = tx.Rollback() }()
	if err := sqllock.Fence(p.t.Context(), tx, lock); err != nil {
		p.wantDiscreet(err.Error())
		return err
	}
	return tx.Commit()
}

// grantAgain undoes revoke.
func grantAgain(function string) string {
	return strings.NewReplacer("REVOKE EXECUTE", "GRANT EXECUTE", "FROM PUBLIC", "TO PUBLIC").Replace(revoke(function))
}
