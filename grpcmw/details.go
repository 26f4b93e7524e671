package grpcmw

import (
	"context"
	"strconv"
	"time"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/protoadapt"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/latchkey-go/latchkey/ratelimit"
)

func (g *guard) errorInfo(reason string, l *ratelimit.Limiter) *errdetails.ErrorInfo {
	return &errdetails.ErrorInfo{
		Reason:   reason,
		Domain:   g.domain,
		Metadata: map[string]string{"namespace": string(l.Namespace())},
	}
}

func limitName(l *ratelimit.Limiter) string { return strconv.Quote(string(l.Namespace())) }

// limitText returns the sentence that names l, which admits size calls and is
// full.
func limitText(l *ratelimit.Limiter, size int) string {
	if size == 1 {
		return "The limit " + limitName(l) + " admits one call at a time, and another call is in progress."
	}
	n := strconv.Itoa(size)
	return "The limit " + limitName(l) + " admits " + n + " calls at a time, and " + n + " are in progress."
}

// tryAgain returns the sentence that says to wait for d, in whole seconds,
// rounded up.
func tryAgain(d time.Duration) string {
	seconds := int64(d / time.Second)
	if d%time.Second > 0 {
		seconds++
	}
	if seconds <= 1 {
		return " Try again in 1 second."
	}
	return " Try again in " + strconv.FormatInt(seconds, 10) + " seconds."
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

func retryInfo(d time.Duration) *errdetails.RetryInfo {
	return &errdetails.RetryInfo{RetryDelay: durationpb.New(d)}
}

// detailed returns a status with details.
func detailed(code codes.Code, text string, details ...protoadapt.MessageV1) *status.Status {
	s := status.New(code, text)
	if with, err := s.WithDetails(details...); err == nil {
		return with
	}
	return s // better without details than not at all
}
