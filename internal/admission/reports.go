package admission

import (
	"cmp"
	"context"
	"log/slog"
	"sync"
	"time"
)

const (
	// interval is the least time between two reports of one mistake.
	interval = time.Minute

	// maxPlaces and maxRoute, in bytes, bound the memory of a Reports. A
	// program has fewer and shorter routes than that. Clients can make up more.
	maxPlaces = 1000
	maxRoute  = 256
)

// Reports logs mistakes, each at most once a minute for each route. The zero
// value is ready for use. It is safe for concurrent use.
type Reports struct {
	mu   sync.Mutex // protects seen; never held while logging
	seen map[place]*report
}

// A place is a mistake on a route.
type place struct{ text, route string }

// A report is the state of one mistake.
type report struct {
	at     time.Time // of the last line in the log
	silent int       // times that it happened since, without one
}

// Log writes a line with text, attrs, and the route unless that is empty.
//
// If the mistake has happened more than once since the last line, "times" is
// the number. A line without a route counts the routes that are too many or too
// long to be listed one by one.
//
// Text must be a constant. The route must be a string, and must not contain an
// id. A nil log means [slog.Default].
func (r *Reports) Log(ctx context.Context, log *slog.Logger, level slog.Level, text string, route slog.Attr, attrs ...slog.Attr) {
	p, times := r.due(place{text, route.Value.String()})
	if times == 0 {
		return
	}
	if p.route != "" {
		attrs = append(attrs, route)
	}
	if times > 1 {
		attrs = append(attrs, slog.Int("times", times))
	}
	cmp.Or(log, slog.Default()).LogAttrs(context.WithoutCancel(ctx), level, text, attrs...)
}

// due counts one more mistake at p. It returns the place that p counts for, and
// how many mistakes to report there now. That number is 0 if the last line is
// too young.
func (r *Reports) due(p place) (counted place, times int) {
	now := time.Now()
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.seen == nil {
		r.seen = make(map[place]*report)
	}
	if len(p.route) > maxRoute || r.seen[p] == nil && len(r.seen) >= maxPlaces {
		p.route = "" // all such routes are one
	}
	last := r.seen[p]
	switch {
	case last == nil:
		r.seen[p] = &report{at: now}
		return p, 1
	case now.Sub(last.at) < interval:
		last.silent++
		return p, 0
	}
	times = last.silent + 1
	last.at, last.silent = now, 0
	return p, times
}
