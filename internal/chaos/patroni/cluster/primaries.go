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

	// Between which looks it began and ended. It began after Before, when the last
	// look before it began, and was there by From, when the first look that found it
	// was over. It was there after To, when the last look that found it began, and
	// was gone by Gone, when the next one was over. If the server refused that look,
	// other sessions may have ended some milliseconds later. Before is 0 if the first
	// look of all found it, and Gone is 0 if the last one did.
	Before, From, To, Gone history.Moment
}

// Until returns when w had ended at the latest.
func (w Writable) Until() history.Moment {
	if w.Gone == 0 {
		return Never
	}
	return w.Gone
}

// Never is later than every moment.
const Never = history.Moment(1 << 62)

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
			o := &observer{dsn: n.socket() + " user=postgres dbname=postgres application_name=observer"}
			p.watch(ctx, n.Host.Name, o.look)
			o.close(context.WithoutCancel(ctx))
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

// A sighting is what a look has found: a node that accepts writes, or a session.
type sighting struct{ client, id string }

// watch looks at a node, again and again, until ctx ends.
func (p *Primaries) watch(ctx context.Context, node string, look func(context.Context) ([]sighting, error)) {
	last := map[sighting]int{}
	var before history.Moment
	for ctx.Err() == nil {
		from := history.Now()
		found, err := look(ctx)
		if !provesNothing(err) {
			last = p.note(node, last, found, before, from, history.Now())
			before = from
		}
		select {
		case <-ctx.Done():
		case <-time.After(seeEvery):
		}
	}
}

// An observer looks at a server.
type observer struct {
	dsn  string
	conn *pgx.Conn // nil: none
}

// lookQuery asks for the role of a server, and for its Sessions. A Session adds
// its own name to that of [Named]. Each session, and each start of the server, has
// an id of its own.
const lookQuery = `SELECT NOT pg_is_in_recovery(), pg_postmaster_start_time()::text, coalesce(array_agg(application_name), '{}'), coalesce(array_agg(pid::text), '{}')
	FROM pg_stat_activity WHERE application_name LIKE '% latchkey'`

// lookTimeout bounds a look.
const lookTimeout = 2 * time.Second

// look looks once.
func (o *observer) look(ctx context.Context) (found []sighting, err error) {
	ctx, cancel := context.WithTimeout(ctx, lookTimeout)
	defer cancel()
	if o.conn == nil {
		if o.conn, err = pgx.Connect(ctx, o.dsn); err != nil {
			o.conn = nil
			return nil, err
		}
	}
	var writable bool
	var started string
	var clients, ids []string
	if err := o.conn.QueryRow(ctx, lookQuery).Scan(&writable, &started, &clients, &ids); err != nil {
		o.close(ctx)
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

// close ends the observer's connection. The next look opens another one.
func (o *observer) close(ctx context.Context) {
	if o.conn != nil {
		_ = o.conn.Close(ctx)
		o.conn = nil
	}
}

// provesNothing reports whether a look ended without an answer. Any other error
// is treated as the error of a server that ends its sessions, or is not there.
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
			p.all = append(p.all, Writable{Node: node, Client: s.client, Before: before, From: until})
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
