package pgtest

import (
	"context"
	"errors"
	"fmt"
)

// Standby starts a hot standby of c. It is a copy that follows c by
// asynchronous streaming replication, and serves queries that do not write.
//
// The standby has a DSN of its own, and can be killed, frozen and promoted
// independently. It is closed with c, if not before.
func (c *Cluster) Standby() (*Cluster, error) {
	s := &Cluster{settings: c.settings}
	if err := s.start(c.copyBackup); err != nil {
		return nil, err
	}
	if err := c.adopt(s.Close); err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(context.Background(), startTimeout)
	defer cancel()
	err := poll(startTimeout, "the standby to follow", func() (bool, error) {
		return queryValue[bool](ctx, s.DSN(""), "SELECT EXISTS (SELECT FROM pg_stat_wal_receiver WHERE status = 'streaming')")
	})
	if err != nil {
		return nil, errors.Join(fmt.Errorf("%w%s", err, s.home.logTail(0)), s.Close())
	}
	return s, nil
}

// Promote makes a standby a primary, as a failover does, and returns when it
// accepts writes. The server that it followed goes on: kill or freeze that
// server first, or there are two primaries.
func (c *Cluster) Promote() error {
	ctx, cancel := context.WithTimeout(context.Background(), startTimeout)
	defer cancel()
	promoted, err := queryValue[bool](ctx, c.DSN(""), fmt.Sprintf("SELECT pg_promote(true, %d)", int(startTimeout.Seconds())))
	if err != nil {
		return fmt.Errorf("pgtest: promote: %w", err)
	}
	if !promoted {
		return errors.New("pgtest: the standby was not promoted in time" + c.home.logTail(0))
	}
	return nil
}
