package cluster

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/latchkey-go/latchkey/internal/chaos/history"
)

// A Writable is a time during which PostgreSQL on a node was seen to accept
// writes.
type Writable struct {
	Node     string
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
		wg.Go(func() { p.watch(ctx, n) })
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

// watch looks at n. Each look that finds a primary prolongs its last time, or
// begins another one after a look that did not.
func (p *Primaries) watch(ctx context.Context, n *Node) {
	var conn *pgx.Conn
	dsn := fmt.Sprintf("host=%s port=%d user=postgres dbname=postgres sslmode=disable application_name=observer", n.dir, postgresPort)
	last := -1
	for ctx.Err() == nil {
		writable := false
		limited, cancel := context.WithTimeout(ctx, 2*time.Second)
		if conn == nil {
			conn, _ = pgx.Connect(limited, dsn)
		}
		at := history.Now()
		if conn != nil {
			if err := conn.QueryRow(limited, "SELECT NOT pg_is_in_recovery()").Scan(&writable); err != nil {
				writable = false
				_ = conn.Close(limited)
				conn = nil
			}
		}
		cancel()
		if !writable {
			last = -1
		} else {
			last = p.note(n.Host.Name, last, at)
		}
		select {
		case <-ctx.Done():
		case <-time.After(seeEvery):
		}
	}
	if conn != nil {
		_ = conn.Close(context.WithoutCancel(ctx))
	}
}

// note adds a look to the i-th time, or to a new one if i is negative.
func (p *Primaries) note(node string, i int, at history.Moment) int {
	p.mu.Lock()
	defer p.mu.Unlock()
	if i < 0 {
		p.all = append(p.all, Writable{Node: node, From: at})
		i = len(p.all) - 1
	}
	p.all[i].To = at
	return i
}
