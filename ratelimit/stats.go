package ratelimit

import (
	"time"

	"github.com/latchkey-go/latchkey/internal/inside"
	"github.com/latchkey-go/latchkey/sqllock"
)

// Stats are the figures of a [Limiter] in this process, for metrics and logs.
// Totals begin with the Limiter, and only grow. No figure is about a single id.
//
// They are the figures of this Limiter alone. Another one of the same namespace
// shares its limit, and has figures of its own. So read those of the Limiter
// that requests use.
type Stats struct {
	// Requests counts the decisions and the ends of holds. It always has each
	// Result, also with 0. The first seven add up to the calls of Acquire that
	// have ended and the requests that a middleware has rejected without an id.
	// A call of AcquireAll counts on this level if it was admitted, or if this
	// level has rejected it.
	//
	// Requests[Admitted] is the sum of Active, Requests[Released] and
	// Requests[Lost].
	Requests map[Result]uint64

	Active  int           // locks held now
	Queued  int           // requests that wait now for a busy id
	AtLimit int           // ids with as many locks of this process as the limit of their last admission, or more
	Oldest  time.Duration // age of the oldest of the locks held now; 0: there is none

	LeaseDuration sqllock.Histogram // how long the locks that have ended were held, in seconds
	TimeInQueue   sqllock.Histogram // how long requests waited for a busy id, with or without success, in seconds; those that did not wait are not in it
}

// Stats returns the figures of l at this moment. It needs no query. It looks at
// each id of which this process has a lock, which takes microseconds for a
// hundred of them.
func (l *Limiter) Stats() Stats {
	s := Stats{
		Queued:        int(l.lines.waiting.Load()),
		LeaseDuration: sqllock.Histogram(l.holds.lengths.Snapshot()),
		TimeInQueue:   sqllock.Histogram(l.queued.Snapshot()),
	}
	l.holds.describe(&s)
	return s
}

// figures returns what package lockui shows.
func (l *Limiter) figures() inside.Figures {
	s := l.Stats()
	f := inside.Figures{Active: s.Active, AtLimit: s.AtLimit, Queued: s.Queued, Oldest: s.Oldest, Requests: make(map[string]uint64, len(s.Requests))}
	for result, n := range s.Requests {
		f.Requests[string(result)] = n
	}
	return f
}
