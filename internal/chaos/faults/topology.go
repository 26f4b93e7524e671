package faults

import (
	"context"
	"database/sql"
	"errors"
	"net/url"
	"time"

	"github.com/latchkey-go/latchkey/internal/chaos/fleet"
	"github.com/latchkey-go/latchkey/internal/pgtest"
	"github.com/latchkey-go/latchkey/sqllock"
)

// placeRows are servers that are not one writable primary, or that have a
// pooler in front.
var placeRows = []Row{
	{Number: 19, Name: "failover to a standby that lags", Effect: NothingLost, Bystander: true, inject: failOver},
	{Number: 20, Name: "a standby answers", Effect: VictimLoses, inject: standby},
	{Number: 21, Name: "PgBouncer, transaction mode", Quick: true, Effect: NothingLost, Bystander: true, inject: transactionPooler},
	{Number: 22, Name: "PgBouncer, session mode, killed", Effect: NothingLost, Bystander: true, inject: sessionPooler},
}

func standby(ctx context.Context, f *Injector) (*fleet.Member, error) {
	m := f.member()
	s, err := f.Standby()
	if err != nil {
		return m, err
	}
	dsn, host, err := f.StandbyDSN(s)
	if err != nil {
		return m, err
	}
	if err := f.refused(ctx, dsn); err != nil {
		return m, err
	}
	f.begin()
	if err := m.Proxy.Switch(host); err != nil {
		return m, err
	}
	err = f.notServed(ctx, m, "calls to fail with ErrNotExclusive", func() int64 { return m.Process.Status().NotExclusive })
	return m, errors.Join(err, m.Proxy.Switch(f.Server()))
}

// A pooled is a database of its own with a pooler in front.
type pooled struct {
	f       *Injector
	bouncer *pgtest.Bouncer
	name    string
	direct  string // DSN
	through string // DSN
}

func (f *Injector) pool(ctx context.Context, mode string) (*pooled, error) {
	dsn, err := f.Cluster.CreateDatabase(ctx)
	if err != nil {
		return nil, err
	}
	u, err := url.Parse(dsn)
	if err != nil {
		return nil, err
	}
	p := &pooled{f: f, name: u.Path[1:], direct: dsn}
	if p.bouncer, err = f.Cluster.PgBouncer(mode, 5); err != nil {
		return nil, errors.Join(err, p.close(ctx))
	}
	p.through = p.bouncer.DSN(p.name)
	return p, nil
}

func (p *pooled) close(ctx context.Context) error {
	var err error
	if p.bouncer != nil {
		err = p.bouncer.Close()
	}
	return errors.Join(err, p.f.Exec(ctx, "DROP DATABASE "+p.name+" WITH (FORCE)"))
}

func transactionPooler(ctx context.Context, f *Injector) (victim *fleet.Member, err error) {
	p, err := f.pool(ctx, "transaction")
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, p.close(ctx)) }()
	for range 3 {
		if err := f.refused(ctx, p.through); err != nil {
			return nil, err
		}
	}
	db, err := sql.Open("pgx", p.direct)
	if err != nil {
		return nil, err
	}
	defer db.Close()
	for what, query := range map[string]string{
		"locks":    "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND database = (SELECT oid FROM pg_database WHERE datname = current_database())",
		"settings": "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND application_name LIKE '%latchkey'",
	} {
		var n int
		if err := db.QueryRowContext(ctx, query).Scan(&n); err != nil {
			return nil, err
		}
		if n > 0 {
			return nil, violation("a refused Open left %d %s on the server", n, what)
		}
	}
	return nil, nil
}

func sessionPooler(ctx context.Context, f *Injector) (victim *fleet.Member, err error) {
	p, err := f.pool(ctx, "session")
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, p.close(ctx)) }()
	behind, err := f.open(ctx, p.through)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, behind.close()) }()
	direct, err := f.open(ctx, p.direct)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, direct.close()) }()
	return nil, f.killPooler(ctx, p, behind, direct)
}

// killPooler kills the pooler while a lock is held through it. The holder must
// be told, and the key must become free.
func (f *Injector) killPooler(ctx context.Context, p *pooled, behind, direct *client) error {
	key := sqllock.Namespace("pooler").Key("one")
	lock, err := behind.TryLock(ctx, key)
	if err != nil {
		return err
	}
	if err := held(ctx, direct, key); err != nil {
		return err
	}
	if err := p.bouncer.Kill(); err != nil {
		return err
	}
	if err := f.told(ctx, lock); err != nil {
		return err
	}
	return free(ctx, direct, key, f.Lease+2*time.Second)
}
