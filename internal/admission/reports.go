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
	mu   sync.Mutex // protects last; never held while logging
	last map[place]time.Time
}

// A place is a mistake on a route. Routes that are too many or too long to be
// told apart are "".
type place struct{ text, route string }

// Log writes a line with text, attrs, and the route unless that is "".
//
// Text must be a constant. The route must be a string, and must not contain an
// id. A nil log means [slog.Default].
func (r *Reports) Log(ctx context.Context, log *slog.Logger, level slog.Level, text string, route slog.Attr, attrs ...slog.Attr) {
	p, due := r.due(place{text, route.Value.String()})
	if !due {
		return
	}
	if p.route != "" {
		attrs = append(attrs, route)
	}
	cmp.Or(log, slog.Default()).LogAttrs(context.WithoutCancel(ctx), level, text, attrs...)
}

// due returns the place that a mistake at p counts for, and whether to report it
// now.
func (r *Reports) due(p place) (counted place, due bool) {
	now := time.Now()
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.last == nil {
		r.last = make(map[place]time.Time)
	}
	last, seen := r.last[p]
	if len(p.route) > maxRoute || !seen && len(r.last) >= maxPlaces {
		p.route = ""
		last, seen = r.last[p]
	}
	if due = !seen || now.Sub(last) >= interval; due {
		r.last[p] = now
	}
	return p, due
}
