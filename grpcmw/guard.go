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

// A guard is what both interceptors share: the limiter, the KeyFunc, and how a
// rejection looks.
type guard struct {
	limiter  *ratelimit.Limiter
	key      KeyFunc
	conflict bool
	domain   string
	busyText string        // "" for the limit's name and size
	pushback time.Duration // for a busy key; 0 for that of RetryInfo
	all      bool          // limits health checks and reflection, too
	lastBusy atomic.Pointer[busyStatus]

	log     *slog.Logger // nil for slog.Default
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

// admit acquires the lock for a call of method whose KeyFunc has returned key
// and err. It returns a rejection, or a lock. Both are nil for a call that is
// admitted without a lock: in a dry run, by WithFailOpen or by ErrBypass.
func (g *guard) admit(ctx context.Context, method, key string, err error) (*sqllock.Lock, *rejection) {
	if err == nil && key == "" {
		err = ErrNoKey
	}
	switch {
	case errors.Is(err, ErrBypass):
		return nil, nil
	case err != nil:
		rejected := g.keyRejection(ctx, err)
		g.reportKey(ctx, method, rejected, err)
		if g.limiter.Refuse(ctx, err) == nil {
			return nil, nil
		}
		return nil, rejected
	}
	if g.limiter.Carried(ctx, key) {
		g.report(ctx, method, slog.LevelError, twiceText, slog.Int("limit", g.limiter.Limit()))
	}
	lock, err := g.limiter.Acquire(ctx, key)
	if err != nil {
		return nil, g.limiterRejection(ctx, err)
	}
	return lock, nil
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
