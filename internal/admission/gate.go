// Package admission is what the packages httpmw, grpcmw and grpcmw/connectmw
// share. A [Gate] finds which places a request needs, and acquires them.
// [ReasonOf] says why a request gets none.
package admission

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"reflect"
	"slices"
	"strconv"
	"time"

	"github.com/latchkey-go/latchkey/internal/inside"
	"github.com/latchkey-go/latchkey/ratelimit"
)

// A Gate is the limits in front of a server's handlers. It logs mistakes in how
// the server is put together. It is safe for concurrent use.
type Gate struct {
	Limiters []*ratelimit.Limiter
	Log      *slog.Logger // nil for slog.Default

	Package string // such as "httpmw"; this and the next are words for the log
	Noun    string // a request, such as "call"
	Route   string // the name of the attribute with the route, such as "method"
	Inside  string // where the middleware belongs, such as "after the authentication"

	reports Reports
}

// A Level is the Level of a package, whose KeyFunc is an F.
type Level[F any] interface {
	~struct {
		Limiter *ratelimit.Limiter
		Key     F
	}
}

// Levels returns the limiters and the KeyFuncs of levels. It panics, on behalf
// of caller, if there are no levels or a field is nil.
func Levels[L Level[F], F any](caller string, levels []L) (limiters []*ratelimit.Limiter, keys []F) {
	if len(levels) == 0 {
		panic(caller + " needs at least one Level")
	}
	for _, l := range levels {
		level := struct {
			Limiter *ratelimit.Limiter
			Key     F
		}(l)
		switch {
		case level.Limiter == nil:
			panic(caller + " needs a *ratelimit.Limiter that is not nil")
		case reflect.ValueOf(level.Key).IsNil():
			panic(caller + " needs a KeyFunc that is not nil")
		}
		limiters, keys = append(limiters, level.Limiter), append(keys, level.Key)
	}
	return limiters, keys
}

// ErrLater is what a key func of Identify returns if the id is not known yet.
var ErrLater = errors.New("admission: the id comes later")

// Identify adds to r the places of all levels. key calls the KeyFunc of a level.
// Each has returned before the next is called. The error of one ends Identify,
// except ErrBypass and errors in a dry run, and is a [KeyError]. After
// [ErrLater] the next call of Identify goes on with the same level.
func (g *Gate) Identify(ctx context.Context, route string, r *Request, key func(level int) (string, error)) error {
	for ; r.next < len(g.Limiters); r.next++ {
		id, err := key(r.next)
		if err == nil && id == "" {
			err = ratelimit.ErrNoKey
		}
		switch l := g.Limiters[r.next]; {
		case err == nil:
			r.add(l, id)
		case err == ErrLater: //nolint:errorlint // a key func returns it as it is
			return err
		case errors.Is(err, ratelimit.ErrBypass):
		default:
			failed := KeyErrorOf(ctx, err)
			g.reportKey(ctx, route, l, failed)
			if err := inside.Refuse(ctx, l, failed); err != nil {
				return err
			}
		}
	}
	return nil
}

// Acquire acquires all places of r or none. Its errors are those of
// [ratelimit.AcquireAll]. If waits is not nil, it is called when the request has
// a place in line, with a context that ends with the wait.
func (g *Gate) Acquire(ctx context.Context, route string, r *Request, waits func(context.Context)) (Held, error) {
	if l := r.carried(ctx); l != nil {
		g.Report(ctx, route, slog.LevelError, ": a "+g.Noun+" needs two places of one limit: is the limit on its road twice?",
			slog.String("namespace", string(l.Namespace())), slog.Int("limit", l.Limit()))
	}
	held, err := r.acquire(ctx, waits)
	if errors.Is(err, ratelimit.ErrPolicy) { // its text names the limit
		g.Report(ctx, route, slog.LevelError, ": the policy of a limit failed", slog.Any("error", err))
	}
	return held, err
}

// Pending returns the limits that r needs and those that are not identified yet.
func (g *Gate) Pending(r *Request) (all []*ratelimit.Limiter) {
	for _, level := range r.levels {
		all = append(all, level.Limiter)
	}
	return append(all, g.Limiters[r.next:]...)
}

// reportKey logs the error of a KeyFunc for l, if it is the server's mistake.
func (g *Gate) reportKey(ctx context.Context, route string, l *ratelimit.Limiter, err KeyError) {
	attrs := []slog.Attr{slog.Any("error", err), slog.String("namespace", string(l.Namespace()))}
	switch why := ReasonOf(err); {
	case why == Fault:
		g.Report(ctx, route, slog.LevelError, ": a KeyFunc failed", attrs...)
	case why != Ended && errors.Is(err, ratelimit.ErrNoKey):
		g.Report(ctx, route, slog.LevelWarn, ": a "+g.Noun+" has no key: is the "+g.Inside+"?", attrs...)
	}
}

// Report logs a mistake in how the server is put together, at most once a minute
// for each route. text must be a constant.
func (g *Gate) Report(ctx context.Context, route string, severity slog.Level, text string, attrs ...slog.Attr) {
	g.reports.Log(ctx, g.Log, severity, g.Package+text, slog.String(g.Route, route), attrs...)
}

// Full returns which level err, of the reason Busy, names, how many requests
// that level admits, and when to try again. level is -1 if err names none of
// several. A single level is the one.
func (g *Gate) Full(err error) (level, size int, retry time.Duration) {
	full := busyError(err)
	if len(g.Limiters) > 1 {
		level = slices.IndexFunc(g.Limiters, func(l *ratelimit.Limiter) bool { return string(l.Namespace()) == full.Namespace })
	}
	if level >= 0 {
		size = cmp.Or(full.Limit, g.Limiters[level].Limit())
	}
	return level, size, full.RetryAfter
}

// FullText returns the sentence that names l, which is full, and its size.
func (g *Gate) FullText(l *ratelimit.Limiter, size int) string {
	limit := "The limit " + strconv.Quote(string(l.Namespace())) + " admits "
	if size == 1 {
		return limit + "one " + g.Noun + " at a time, and another " + g.Noun + " is in progress."
	}
	n := strconv.Itoa(size)
	return limit + n + " " + g.Noun + "s at a time, and " + n + " are in progress."
}

// Seconds returns d in seconds, rounded up, at least 1.
func Seconds(d time.Duration) int64 {
	seconds := int64(d / time.Second)
	if d%time.Second > 0 {
		seconds++
	}
	return max(1, seconds)
}

// busyError returns the BusyError in err. If there is none, it is one to try
// again in a second. That of a Limiter costs no allocation.
func busyError(err error) *ratelimit.BusyError {
	if full, own := err.(*ratelimit.BusyError); own { //nolint:errorlint // what wraps one is looked at below
		return full
	}
	var full *ratelimit.BusyError
	if errors.As(err, &full) {
		return full
	}
	return &ratelimit.BusyError{RetryAfter: time.Second}
}
