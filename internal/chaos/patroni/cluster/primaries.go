//go:build linux

package cluster

import (
	"context"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/latchkey-go/latchkey/internal/chaos/history"
)

// A Writable is a time during which PostgreSQL on a node was seen to accept
// writes, or to have a session of a client.
type Writable struct {
	Node     string
	Client   string `json:",omitempty"` // the session's application_name; empty: the node accepts writes
	From, To history.Moment
}

// seeEvery is how often a node is looked at.
const seeEvery = 50 * time.Millisecond

// Primaries are what an observer has seen, through sockets that no cut of the
// network reaches.
type Primaries struct {
	mu  sync.Mutex // protects all
	all []Writable
}

// Watch observes all nodes until ctx ends. Then it closes the channel.
func (c *Cluster) Watch(ctx context.Context) (*Primaries, <-chan struct{}) {
	p, done := &Primaries{}, make(chan struct{})
	var wg sync.WaitGroup
	for _, n := range c.Nodes {
		wg.Go(func() {
			p.watch(ctx, n.Host.Name, n.socket()+" user=postgres dbname=postgres application_name=observer")
		})
	}
	go func() {
		wg.Wait()
		close(done)
	}()
	return p, done
}

// Seen returns what was seen so far.
func (p *Primaries) Seen() []Writable {
	p.mu.Lock()
	defer p.mu.Unlock()
	return append([]Writable(nil), p.all...)
}

// look is the observer's query. A Session adds its own name to that of [Named].
const look = `SELECT NOT pg_is_in_recovery(), coalesce((SELECT array_agg(DISTINCT application_name)
	FROM pg_stat_activity WHERE application_name LIKE '% latchkey'), '{}')`

// watch looks at a node. Each look prolongs the last time of what it finds, or begins
// another one after a look that did not find it.
func (p *Primaries) watch(ctx context.Context, node, dsn string) {
	var conn *pgx.Conn
	last := map[string]int{}
	for ctx.Err() == nil {
		var writable bool
		var found []string
		limited, cancel := context.WithTimeout(ctx, 2*time.Second)
		if conn == nil {
			conn, _ = pgx.Connect(limited, dsn)
		}
		at := history.Now()
		if conn != nil {
			if err := conn.QueryRow(limited, look).Scan(&writable, &found); err != nil {
				writable, found = false, nil
				_ = conn.Close(limited)
				conn = nil
			}
		}
		cancel()
		if writable {
			found = append(found, "")
		}
		last = p.note(node, last, found, at)
		select {
		case <-ctx.Done():
		case <-time.After(seeEvery):
		}
	}
	if conn != nil {
		_ = conn.Close(context.WithoutCancel(ctx))
	}
}

// note adds a look that has found clients, and "" for a primary. last has the
// indexes of what the look before has found.
func (p *Primaries) note(node string, last map[string]int, found []string, at history.Moment) map[string]int {
	p.mu.Lock()
	defer p.mu.Unlock()
	now := map[string]int{}
	for _, client := range found {
		i, ok := last[client]
		if !ok {
			p.all = append(p.all, Writable{Node: node, Client: client, From: at})
			i = len(p.all) - 1
		}
		p.all[i].To = at
		now[client] = i
	}
	return now
}
