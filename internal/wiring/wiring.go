// Package wiring reports mistakes in how a server puts its middleware together.
// Packages httpmw and grpcmw share it.
package wiring

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

	// maxPlaces bounds the memory of a Reports. A program has fewer routes.
	maxPlaces = 1000
)

// Reports logs mistakes, each at most once a minute for each route. The zero
// value is ready for use. It is safe for concurrent use.
type Reports struct {
	mu   sync.Mutex // protects seen; never held while logging
	seen map[place]*report
}

// A place is a mistake on a route.
type place struct{ text, route string }

// A report is what became of a mistake.
type report struct {
	at     time.Time // of the last line in the log
	silent int       // times that it happened since, without one
}

// Log writes a line with text, attrs, and the route unless that is empty. If the
// mistake has happened more than once since the last line, "times" says how often.
//
// Text must be a constant. The route must be a string, and must not hold an id. A
// nil log is [slog.Default].
func (r *Reports) Log(ctx context.Context, log *slog.Logger, level slog.Level, text string, route slog.Attr, attrs ...slog.Attr) {
	times := r.due(place{text, route.Value.String()})
	if times == 0 {
		return
	}
	if route.Value.String() != "" {
		attrs = append(attrs, route)
	}
	if times > 1 {
		attrs = append(attrs, slog.Int("times", times))
	}
	cmp.Or(log, slog.Default()).LogAttrs(context.WithoutCancel(ctx), level, text, attrs...)
}

// due counts one more mistake at p. It returns how many to report now, which is
// 0 if the last line is too young.
func (r *Reports) due(p place) (times int) {
	now := time.Now()
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.seen == nil {
		r.seen = make(map[place]*report)
	}
	if r.seen[p] == nil && len(r.seen) >= maxPlaces {
		p.route = "" // all further routes are one
	}
	last := r.seen[p]
	switch {
	case last == nil:
		r.seen[p] = &report{at: now}
		return 1
	case now.Sub(last.at) < interval:
		last.silent++
		return 0
	}
	times = last.silent + 1
	last.at, last.silent = now, 0
	return times
}
