package faults

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"sync"
	"time"

	"github.com/latchkey-go/latchkey/internal/chaos/history"
	"github.com/latchkey-go/latchkey/internal/chaos/proxy"
	"github.com/latchkey-go/latchkey/internal/pgtest"
	"github.com/latchkey-go/latchkey/sqllock"
)

// A stepped is a server with a clock of its own, and clients there.
type stepped struct {
	f       *Injector
	cluster *pgtest.Cluster
	data    *store
	link    *proxy.Proxy
	far     *client   // behind link
	near    []*client // not; one of each driver
	log     eventLog

	after sync.WaitGroup // of the holders that look on at a lost lock
}

// contestedKey is the key that far and near clients contend for.
var contestedKey = sqllock.Namespace("clock").Key("contestedKey")

const farProcess = 1 // near ones follow

func (s *stepped) open(ctx context.Context) error {
	var err error
	if s.cluster, err = pgtest.Start(pgtest.WithClock()); err != nil {
		return err
	}
	dsn := s.cluster.DSN("")
	if s.data, err = openStore(s.f.driver(), dsn); err != nil {
		return err
	}
	if err := s.data.createTables(ctx); err != nil {
		return err
	}
	u, err := url.Parse(dsn)
	if err != nil {
		return err
	}
	if s.link, err = proxy.Start(u.Host, false); err != nil {
		return err
	}
	drivers := pgtest.Drivers()
	for _, i := range s.f.Rand.Perm(len(drivers)) {
		g, err := s.f.openBy(ctx, drivers[i], dsn)
		if err != nil {
			return err
		}
		s.near = append(s.near, g)
	}
	u.Host = s.link.Addr()
	s.far, err = s.f.open(ctx, u.String())
	return err
}

func (s *stepped) close() error {
	var err error
	for _, g := range append(s.near, s.far) {
		if g != nil {
			err = errors.Join(err, g.close())
		}
	}
	if s.link != nil {
		s.link.Close()
	}
	if s.data != nil {
		err = errors.Join(err, s.data.db.Close())
	}
	if s.cluster != nil {
		err = errors.Join(err, s.cluster.Close())
	}
	return err
}

// step steps the clock by d and checks that the server's clock did so. Between
// two readings of it there must be d and the time that has passed.
func (s *stepped) step(ctx context.Context, d time.Duration) error {
	begin := time.Now()
	before, err := s.data.clock(ctx)
	if err != nil {
		return err
	}
	least := time.Now()
	if err := s.cluster.StepClock(d); err != nil {
		return err
	}
	passed := time.Since(least)
	after, err := s.data.clock(ctx)
	if err != nil {
		return err
	}
	const slack = 10 * time.Millisecond // clocks are not set to a nanosecond
	stepped := after.Sub(before)
	if stepped < d+passed-slack || stepped > d+time.Since(begin)+slack {
		return fmt.Errorf("the server's clock went on by %v, and was stepped by %v", stepped, d)
	}
	return nil
}

// during runs act while clients work, and returns what they saw.
func (s *stepped) during(ctx context.Context, act func(context.Context) error) ([]history.Event, error) {
	stop := s.work(ctx)
	err := act(ctx)
	err = errors.Join(err, stop())
	s.after.Wait()
	return s.log.take(), err
}
