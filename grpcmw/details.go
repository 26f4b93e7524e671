package grpcmw

import (
	"strconv"
	"time"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/protoadapt"
	"google.golang.org/protobuf/types/known/durationpb"
)

func (g *guard) errorInfo(reason string) *errdetails.ErrorInfo {
	return &errdetails.ErrorInfo{
		Reason:   reason,
		Domain:   g.domain,
		Metadata: map[string]string{"namespace": string(g.limiter.Namespace())},
	}
}

func (g *guard) limitName() string { return strconv.Quote(string(g.limiter.Namespace())) }

// limitText says which limit is full.
func (g *guard) limitText() string {
	if g.limiter.Limit() == 1 {
		return "The limit " + g.limitName() + " admits one call at a time, and another call is in progress."
	}
	n := strconv.Itoa(g.limiter.Limit())
	return "The limit " + g.limitName() + " admits " + n + " calls at a time, and " + n + " are in progress."
}

// tryAgain says to wait for d, in whole seconds, rounded up.
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

// pushback is the trailer that has gRPC's own retries wait for d, rounded up.
func pushback(d time.Duration) metadata.MD {
	ms := int64(d / time.Millisecond)
	if d%time.Millisecond > 0 {
		ms++
	}
	return metadata.Pairs("grpc-retry-pushback-ms", strconv.FormatInt(ms, 10))
}

func retryInfo(d time.Duration) *errdetails.RetryInfo {
	return &errdetails.RetryInfo{RetryDelay: durationpb.New(d)}
}

func detailed(code codes.Code, text string, details ...protoadapt.MessageV1) *status.Status {
	s := status.New(code, text)
	if with, err := s.WithDetails(details...); err == nil {
		return with
	}
	return s // without details rather than not at all
}
