package grpcmw

import (
	"context"
	"strconv"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/protoadapt"

	"github.com/latchkey-go/latchkey/internal/rpclimit"
	"github.com/latchkey-go/latchkey/ratelimit"
)

// limit returns what the statuses say about l.
func (g *guard) limit(l *ratelimit.Limiter) rpclimit.Limit {
	return rpclimit.Limit{
		Namespace: string(l.Namespace()),
		Size:      l.Limit(),
		Domain:    g.domain,
		BusyText:  g.busyText,
		Conflict:  g.conflict,
	}
}

// rejectionOf returns the rejection with s. It has a pushback if s has a
// RetryInfo.
func rejectionOf(s rpclimit.Status) *rejection {
	details := make([]protoadapt.MessageV1, len(s.Details))
	for i, d := range s.Details {
		details[i] = protoadapt.MessageV1Of(d)
	}
	r := &rejection{status: status.New(codes.Code(s.Code), s.Text)}
	if with, err := r.status.WithDetails(details...); err == nil {
		r.status = with // better without details than not at all
	}
	if s.Retry > 0 {
		r.pushback = newPushback(s.Retry)
	}
	return r
}

// A pushback tells gRPC's own retries how long to wait.
type pushback struct {
	delay   time.Duration
	trailer metadata.MD // gRPC copies it
}

// newPushback returns the pushback of d, rounded up to milliseconds.
func newPushback(d time.Duration) pushback {
	ms := int64(d / time.Millisecond)
	if d%time.Millisecond > 0 {
		ms++
	}
	return pushback{d, metadata.Pairs("grpc-retry-pushback-ms", strconv.FormatInt(ms, 10))}
}

// inTime reports whether p ends before the deadline of ctx. A client also obeys
// a longer pushback. It then waits for its deadline, and gets DEADLINE_EXCEEDED
// instead of the rejection.
func (p pushback) inTime(ctx context.Context) bool {
	deadline, ok := ctx.Deadline()
	return !ok || time.Until(deadline) > p.delay
}
