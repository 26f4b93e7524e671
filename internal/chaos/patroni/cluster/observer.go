//go:build linux

package cluster

import (
	"context"
	"errors"
	"math"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/latchkey-go/latchkey/internal/chaos/history"
)

// A Sighting is a time during which PostgreSQL on a node was seen to accept
// writes.
//
// It began after Before, when the last look without it began, and was there by
// From. It was there after To, and was gone by Gone, when the next look was over.
// Before is 0 if the first look of all found it, and Gone is 0 if the last did.
type Sighting struct {
	Node                   string
	Before, From, To, Gone history.Moment
}

// Until returns when s had ended at the latest.
func (s Sighting) Until() history.Moment {
	if s.Gone == 0 {
		return math.MaxInt64
	}
	return s.Gone
}

// A Log is what was seen on all nodes.
type Log struct {
	All   []Sighting
	Blind time.Duration // the longest between two looks at a node

	mu sync.Mutex // protects all above until Watch is over
}

// Watch looks at all nodes every 50 ms until ctx ends, through sockets that no
// cut of the network reaches. Then it sends what it has seen.
func (c *Cluster) Watch(ctx context.Context) <-chan *Log {
	l, result := &Log{}, make(chan *Log, 1)
	var wg sync.WaitGroup
	for _, n := range c.Nodes {
		wg.Go(func() {
			o := &observer{dsn: n.socket() + " user=postgres dbname=postgres"}
			l.watch(ctx, n.Host.Name, o.look)
			o.close(context.WithoutCancel(ctx))
		})
	}
	go func() {
		wg.Wait()
		result <- l
	}()
	return result
}

// watch looks at a node, again and again, until ctx ends. A look returns when a
// server was started that accepts writes; empty: there is none.
func (l *Log) watch(ctx context.Context, node string, look func(context.Context) (string, error)) {
	var before history.Moment // when the last look began that proves something
	var last string           // what it has found
	var index int             // of that in l.All
	for ctx.Err() == nil {
		from := history.Now()
		found, err := look(ctx)
		if !provesNothing(err) {
			l.mu.Lock()
			if before != 0 {
				l.Blind = max(l.Blind, time.Duration(from-before))
			}
			if found != last && last != "" {
				l.All[index].Gone = history.Now()
			}
			if found != last && found != "" {
				index = len(l.All)
				l.All = append(l.All, Sighting{Node: node, Before: before, From: history.Now()})
			}
			if found != "" {
				l.All[index].To = from
			}
			before, last = from, found
			l.mu.Unlock()
		}
		select {
		case <-ctx.Done():
		case <-time.After(50 * time.Millisecond):
		}
	}
}

// provesNothing reports whether a look ended without an answer. Any other error
// is that of a server that ends its sessions, or is not there.
func provesNothing(err error) bool {
	return pgconn.Timeout(err) || errors.Is(err, context.DeadlineExceeded) || errors.Is(err, context.Canceled)
}

// An observer looks at a server.
type observer struct {
	dsn  string
	conn *pgx.Conn // nil: none
}

// look looks once, for at most two seconds.
func (o *observer) look(ctx context.Context) (started string, err error) {
	ctx, cancel := context.WithTimeout(ctx, 2*time.Second)
	defer cancel()
	if o.conn == nil {
		if o.conn, err = pgx.Connect(ctx, o.dsn); err != nil {
			o.conn = nil
			return "", err
		}
	}
	err = o.conn.QueryRow(ctx, "SELECT CASE WHEN pg_is_in_recovery() THEN '' ELSE pg_postmaster_start_time()::text END").Scan(&started)
	if err != nil {
		o.close(ctx)
	}
	return started, err
}

// close ends the observer's connection. The next look opens another one.
func (o *observer) close(ctx context.Context) {
	if o.conn != nil {
		_ = o.conn.Close(ctx)
		o.conn = nil
	}
}
