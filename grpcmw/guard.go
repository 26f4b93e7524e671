package grpcmw

import (
	"context"
	"sync/atomic"

	"google.golang.org/grpc/metadata"

	"github.com/latchkey-go/latchkey/ratelimit"
	"github.com/latchkey-go/latchkey/sqllock"
)

// guard is what both interceptors share: whose call it is, and what a refusal
// looks like.
type guard struct {
	limiter  *ratelimit.Limiter
	key      KeyFunc
	conflict bool
	domain   string
	pushback metadata.MD // nil for none; gRPC copies it
	lastBusy atomic.Pointer[busyStatus]
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

// admit takes the lock for a call whose KeyFunc has answered key and err. A
// call that is refused has a refusal; one that is admitted may have no lock, in
// a dry run or failed open.
func (g *guard) admit(ctx context.Context, key string, err error) (*sqllock.Lock, *refusal) {
	if err != nil {
		if g.limiter.Refuse(err) == nil {
			return nil, nil
		}
		return nil, &refusal{status: keyVerdict(ctx, err)}
	}
	lock, err := g.limiter.Acquire(ctx, key)
	if err != nil {
		return nil, g.verdict(ctx, err)
	}
	return lock, nil
}

// refuse is refused as an error. Its pushback goes into the trailer only, by the
// call's setTrailer: a header would end gRPC's own retries.
func (g *guard) refuse(refused *refusal, setTrailer func(metadata.MD)) error {
	if refused.again && g.pushback != nil {
		setTrailer(g.pushback)
	}
	return refused.status.Err()
}
