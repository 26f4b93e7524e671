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

// A Sighting is a time during which PostgreSQL on a node was seen to accept
// writes, or to have a session of a client.
//
// It began after Before, when the last look without it began, and was there by
// From. It was there after To, and was gone by Gone, when the next look was over.
// Before is 0 if the first look of all found it, and Gone is 0 if the last did.
type Sighting struct {
	Node                   string
	Client                 string // the session's application_name; empty: the node accepts writes
	Before, From, To, Gone history.Moment
}

// Never is later than every moment.
const Never = history.Moment(1 << 62)

// Until returns when s had ended at the latest.
func (s Sighting) Until() history.Moment {
	if s.Gone == 0 {
		return Never
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
			o := &observer{dsn: n.socket() + " user=postgres dbname=postgres application_name=observer"}
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

// A found is what one look has found: a node that accepts writes, or a session.
type found struct{ client, id string }

// watch looks at a node, again and again, until ctx ends.
func (l *Log) watch(ctx context.Context, node string, look func(context.Context) ([]found, error)) {
	last := map[found]int{}
	var before history.Moment
	for ctx.Err() == nil {
		from := history.Now()
		now, err := look(ctx)
		// A look without an answer proves nothing. Any other error is that of a server
		// that ends its sessions, or is not there.
		if !pgconn.Timeout(err) && !errors.Is(err, context.DeadlineExceeded) && !errors.Is(err, context.Canceled) {
			last = l.note(node, last, now, before, from, history.Now())
			before = from
		}
		select {
		case <-ctx.Done():
		case <-time.After(50 * time.Millisecond):
		}
	}
}

// note adds a look, which took from from until until. The look before it began
// at before, and last has the indexes of what that one found. Each look prolongs
// what it finds again, and ends the rest.
func (l *Log) note(node string, last map[found]int, looked []found, before, from, until history.Moment) map[found]int {
	l.mu.Lock()
	defer l.mu.Unlock()
	if before != 0 {
		l.Blind = max(l.Blind, time.Duration(from-before))
	}
	now := map[found]int{}
	for _, f := range looked {
		i, ok := last[f]
		if !ok {
			l.All = append(l.All, Sighting{Node: node, Client: f.client, Before: before, From: until})
			i = len(l.All) - 1
		}
		l.All[i].To = from
		now[f] = i
	}
	for f, i := range last {
		if _, ok := now[f]; !ok {
			l.All[i].Gone = until
		}
	}
	return now
}

// An observer looks at a server.
type observer struct {
	dsn  string
	conn *pgx.Conn // nil: none
}

// lookQuery asks for the role of a server, and for its Sessions. A Session adds
// its own name to that of the DSN. Each session, and each start of the server,
// has an id of its own.
const lookQuery = `SELECT NOT pg_is_in_recovery(), pg_postmaster_start_time()::text, coalesce(array_agg(application_name), '{}'), coalesce(array_agg(pid::text), '{}')
	FROM pg_stat_activity WHERE application_name LIKE '% latchkey'`

// look looks once, for at most two seconds.
func (o *observer) look(ctx context.Context) (all []found, err error) {
	ctx, cancel := context.WithTimeout(ctx, 2*time.Second)
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
		all = append(all, found{id: started})
	}
	for i, client := range clients {
		all = append(all, found{client, started + " " + ids[i]})
	}
	return all, nil
}

// close ends the observer's connection. The next look opens another one.
func (o *observer) close(ctx context.Context) {
	if o.conn != nil {
		_ = o.conn.Close(ctx)
		o.conn = nil
	}
}
