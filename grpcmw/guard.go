package grpcmw

import (
	"context"
	"errors"
	"log/slog"
	"sync/atomic"
	"time"

	"google.golang.org/grpc/metadata"

	"github.com/latchkey-go/latchkey/internal/wiring"
	"github.com/latchkey-go/latchkey/ratelimit"
	"github.com/latchkey-go/latchkey/sqllock"
)

// guard is what both interceptors share: whose call it is, and what a rejection
// looks like.
type guard struct {
	limiter  *ratelimit.Limiter
	key      KeyFunc
	conflict bool
	domain   string
	busyText string        // "": the limit's name and size
	pushback time.Duration // for a busy key; 0: what RetryInfo says
	all      bool          // health checks and reflection, too
	lastBusy atomic.Pointer[busyStatus]

	log     *slog.Logger // nil: slog.Default
	reports wiring.Reports
}

func newGuard(name string, l *ratelimit.Limiter, key KeyFunc, opts []Option) *guard {
	switch {
	case l == nil:
		panic("grpcmw: " + name + " needs a limiter that is not nil")
	case key == nil:
		panic("grpcmw: " + name + " needs a KeyFunc that is not nil")
	}
	g := &guard{limiter: l, key: key, domain: "latchkey"}
	for _, opt := range opts {
		opt(g)
	}
	return g
}

// admit takes the lock for a call of method whose KeyFunc has returned key and
// err. A call that is rejected has a refusal; one that is admitted may have no
// lock, in a dry run, failed open, or by ErrBypass.
func (g *guard) admit(ctx context.Context, method, key string, err error) (*sqllock.Lock, *refusal) {
	if err == nil && key == "" {
		err = ErrNoKey
	}
	switch {
	case errors.Is(err, ErrBypass):
		return nil, nil
	case err != nil:
		refused := g.keyVerdict(ctx, err)
		g.reportKey(ctx, method, refused, err)
		if g.limiter.Refuse(err) == nil {
			return nil, nil
		}
		return nil, refused
	}
	if g.limiter.Carried(ctx, key) {
		g.report(ctx, method, slog.LevelError, twiceText, slog.Int("limit", g.limiter.Limit()))
	}
	lock, err := g.limiter.Acquire(ctx, key)
	if err != nil {
		return nil, g.verdict(ctx, err)
	}
	return lock, nil
}

// refuse is refused as an error, for the call of ctx. Its pushback goes into the
// trailer only, by the call's setTrailer: a header would end gRPC's own retries.
func (g *guard) refuse(ctx context.Context, refused *refusal, setTrailer func(metadata.MD)) error {
	if p := refused.pushback; p.trailer != nil && p.inTime(ctx) {
		setTrailer(p.trailer)
	}
	return refused.status.Err()
}
