package faults

import (
	"context"
	"errors"
	"net/url"
	"time"

	"github.com/latchkey-go/latchkey/internal/chaos/fleet"
	"github.com/latchkey-go/latchkey/internal/chaos/proxy"
	"github.com/latchkey-go/latchkey/internal/pgtest"
	"github.com/latchkey-go/latchkey/sqllock"
)

// A pair is a primary and its standby. The holder connects to the server that
// link leads to, the next client to the second one.
type pair struct {
	f                *Injector
	first, second    *pgtest.Cluster
	secondHost       string
	link             *proxy.Proxy
	oldData, newData *store // on first, on second

	holder *client
	early  *sqllock.Lock // holder's; its token was drawn before the failover
	late   *sqllock.Lock // holder's
	next   *client
	nexts  []*sqllock.Lock // next's, of the same keys
}

// open starts both servers, and has the holder take its locks.
func (p *pair) open(ctx context.Context) error {
	if err := p.start(); err != nil {
		return err
	}
	if err := p.oldData.createTables(ctx); err != nil {
		return err
	}
	u, err := url.Parse(p.first.DSN(""))
	if err != nil {
		return err
	}
	if p.link, err = proxy.Start(u.Host, p.f.Rand.IntN(2) == 0); err != nil {
		return err
	}
	u.Host = p.link.Addr()
	if p.holder, err = p.f.open(ctx, u.String()); err != nil {
		return err
	}
	const ns = sqllock.Namespace("failover")
	if p.early, err = p.holder.TryLock(ctx, ns.Key("early")); err != nil {
		return err
	}
	p.late, err = p.holder.TryLock(ctx, ns.Key("late"))
	return err
}

func (p *pair) start() (err error) {
	// The standby gets what is on disk.
	if p.first, err = pgtest.Start(pgtest.WithSettings(map[string]string{"synchronous_commit": "on"})); err != nil {
		return err
	}
	if p.second, err = p.first.Standby(); err != nil {
		return err
	}
	u, err := url.Parse(p.second.DSN(""))
	if err != nil {
		return err
	}
	p.secondHost = u.Host
	if p.oldData, err = openStore(p.f.driver(), p.first.DSN("")); err != nil {
		return err
	}
	p.newData, err = openStore(p.f.driver(), p.second.DSN(""))
	return err
}

// replicated waits until the standby has caught up.
func (p *pair) replicated(ctx context.Context) error {
	var lsn string
	if err := p.oldData.db.QueryRowContext(ctx, "SELECT pg_current_wal_insert_lsn()::text").Scan(&lsn); err != nil {
		return err
	}
	return fleet.Poll(ctx, 10*time.Second, "the standby to catch up", func(ctx context.Context) (ok bool, err error) {
		err = p.newData.db.QueryRowContext(ctx, "SELECT pg_last_wal_replay_lsn() >= $1::pg_lsn", lsn).Scan(&ok)
		return ok, err
	})
}

func (p *pair) close() error {
	var err error
	for _, g := range []*client{p.holder, p.next} {
		if g != nil {
			err = errors.Join(err, g.close())
		}
	}
	if p.link != nil {
		p.link.Close()
	}
	for _, data := range []*store{p.oldData, p.newData} {
		if data != nil {
			err = errors.Join(err, data.db.Close())
		}
	}
	if p.first != nil { // and the second with it
		err = errors.Join(err, p.first.Close())
	}
	return err
}
