package grpcmw

import (
	"context"
	"errors"
	"log/slog"
	"sync/atomic"
	"time"

	"github.com/grpc-ecosystem/go-grpc-middleware/v2/interceptors"
	"google.golang.org/grpc/metadata"

	"github.com/latchkey-go/latchkey/internal/inside"
	"github.com/latchkey-go/latchkey/internal/places"
	"github.com/latchkey-go/latchkey/internal/wiring"
)

// A guard is what both interceptors share: the levels, and how a rejection
// looks.
type guard struct {
	levels   []Level
	conflict bool
	domain   string
	busyText string                       // "" for the limit's name and size
	pushback time.Duration                // for a busy key; 0 for that of RetryInfo
	all      bool                         // limits health checks and reflection, too
	lastBusy []atomic.Pointer[busyStatus] // of each level

	log     *slog.Logger // nil for slog.Default
	reports wiring.Reports
}

// newGuard makes the guard of levels, which it keeps. name is for panics.
func newGuard(name string, levels []Level, opts []Option) *guard {
	if len(levels) == 0 {
		panic("grpcmw: " + name + " needs at least one Level")
	}
	for _, level := range levels {
		switch {
		case level.Limiter == nil:
			panic("grpcmw: " + name + " needs a limiter that is not nil")
		case level.Key == nil:
			panic("grpcmw: " + name + " needs a KeyFunc that is not nil")
		}
	}
	g := &guard{levels: levels, domain: "latchkey", lastBusy: make([]atomic.Pointer[busyStatus], len(levels))}
	for _, opt := range opts {
		opt(g)
	}
	return g
}

// An identification is how far the KeyFuncs have come with a call. Each has
// returned before the next is called.
type identification struct {
	wanted places.Wanted
	next   int // the level whose KeyFunc is called next
}

// identify calls the KeyFuncs of call, of method, from id.next on. It returns a
// rejection, or needsMessage if a KeyFunc has returned ErrNeedMessage on a
// stream that has no message yet. Then identify goes on with that KeyFunc when
// it is called again.
func (g *guard) identify(ctx context.Context, method string, call interceptors.CallMeta, id *identification) (needsMessage bool, rejected *rejection) {
	for ; id.next < len(g.levels); id.next++ {
		key, err := g.levels[id.next].Key(ctx, call)
		if call.ReqOrNil == nil && call.Typ != interceptors.Unary && errors.Is(err, ErrNeedMessage) {
			return true, nil
		}
		if rejected := g.identified(ctx, method, id, key, err); rejected != nil {
			return false, rejected
		}
	}
	return false, nil
}

// identified adds to id the place of the next level, whose KeyFunc has returned
// key and err. It returns a rejection, or nil, also for a level that admits the
// call without a lock: by ErrBypass or in a dry run.
func (g *guard) identified(ctx context.Context, method string, id *identification, key string, err error) *rejection {
	l := g.levels[id.next].Limiter
	if err == nil && key == "" {
		err = ErrNoKey
	}
	switch {
	case err == nil:
		id.wanted.Add(l, key)
		return nil
	case errors.Is(err, ErrBypass):
		return nil
	}
	rejected := g.keyRejection(ctx, err)
	g.reportKey(ctx, method, l, rejected, err)
	if inside.Refuse(ctx, l, err) == nil {
		return nil
	}
	return rejected
}

// admit acquires the places that a call of method wants. Without a rejection it
// is admitted, perhaps without a lock: in a dry run, by WithFailOpen or by
// ErrBypass.
func (g *guard) admit(ctx context.Context, method string, wanted *places.Wanted) (places.Held, *rejection) {
	if l := wanted.Twice(ctx); l != nil {
		g.report(ctx, method, l, slog.LevelError, twiceText, slog.Int("limit", l.Limit()))
	}
	held, err := wanted.Acquire(ctx)
	if err == nil {
		return held, nil
	}
	rejected := g.limiterRejection(ctx, err)
	if rejected.fault {
		g.reportPolicy(ctx, method, err)
	}
	return places.Held{}, rejected
}

// reject returns rejected as an error, for the call of ctx. Its pushback goes
// into the trailer, by the call's setTrailer: a header would end gRPC's own
// retries.
func (g *guard) reject(ctx context.Context, rejected *rejection, setTrailer func(metadata.MD)) error {
	if p := rejected.pushback; p.trailer != nil && p.inTime(ctx) {
		setTrailer(p.trailer)
	}
	return rejected.status.Err()
}
