//go:build linux

package cluster

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/latchkey-go/latchkey/internal/chaos/history"
)

// A Writable is a time during which PostgreSQL on a node was seen to accept
// writes, or to have a session of a client.
type Writable struct {
	Node   string
	Client string `json:",omitempty"` // the session's application_name; empty: the node accepts writes

	From, To history.Moment // of the first look that found it, and of the last one

	// Between which looks it began and ended: Before is when the last look before
	// From began, and Gone is when the first one after To was over. 0: there was
	// none.
	Before, Gone history.Moment
}

// Until returns when w had ended at the latest.
func (w Writable) Until() history.Moment { return max(w.To, w.Gone) }

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
// Each session, and each start of the server, has an id of its own.
const look = `SELECT NOT pg_is_in_recovery(), pg_postmaster_start_time()::text, coalesce(array_agg(application_name), '{}'), coalesce(array_agg(pid::text), '{}')
	FROM pg_stat_activity WHERE application_name LIKE '% latchkey'`

// lookTimeout bounds a look.
const lookTimeout = 2 * time.Second

// A sighting is what a look has found: a node that accepts writes, or a session.
type sighting struct{ client, id string }

// watch looks at a node, again and again.
func (p *Primaries) watch(ctx context.Context, node, dsn string) {
	var conn *pgx.Conn
	last := map[sighting]int{}
	var before history.Moment
	for ctx.Err() == nil {
		from := history.Now()
		limited, cancel := context.WithTimeout(ctx, lookTimeout)
		found, err := see(limited, &conn, dsn)
		if !provesNothing(err) {
			last = p.note(node, last, found, before, from, history.Now())
			before = from
		}
		cancel()
		select {
		case <-ctx.Done():
		case <-time.After(seeEvery):
		}
	}
	if conn != nil {
		_ = conn.Close(context.WithoutCancel(ctx))
	}
}

// see looks once, by conn, which it opens if it is nil. After an error conn is
// nil.
func see(ctx context.Context, conn **pgx.Conn, dsn string) (found []sighting, err error) {
	if *conn == nil {
		if *conn, err = pgx.Connect(ctx, dsn); err != nil {
			*conn = nil
			return nil, err
		}
	}
	var writable bool
	var started string
	var clients, ids []string
	if err := (*conn).QueryRow(ctx, look).Scan(&writable, &started, &clients, &ids); err != nil {
		_ = (*conn).Close(ctx)
		*conn = nil
		return nil, err
	}
	if writable {
		found = append(found, sighting{id: started})
	}
	for i, client := range clients {
		found = append(found, sighting{client, started + " " + ids[i]})
	}
	return found, nil
}

// provesNothing reports whether a look ended without an answer. Any other error
// comes from a server that ends its sessions, or from its absence.
func provesNothing(err error) bool {
	return pgconn.Timeout(err) || errors.Is(err, context.DeadlineExceeded) || errors.Is(err, context.Canceled)
}

// note adds a look, which took from from until until. The look that was added
// before it began at before, and last has the indexes of what it found. Each look
// prolongs what it finds again, and ends the rest.
func (p *Primaries) note(node string, last map[sighting]int, found []sighting, before, from, until history.Moment) map[sighting]int {
	p.mu.Lock()
	defer p.mu.Unlock()
	now := map[sighting]int{}
	for _, s := range found {
		i, ok := last[s]
		if !ok {
			p.all = append(p.all, Writable{Node: node, Client: s.client, Before: before, From: from})
			i = len(p.all) - 1
		}
		p.all[i].To = from
		now[s] = i
	}
	for s, i := range last {
		if _, ok := now[s]; !ok {
			p.all[i].Gone = until
		}
	}
	return now
}
