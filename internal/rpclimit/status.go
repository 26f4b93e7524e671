package rpclimit

import (
	"cmp"
	"context"
	"errors"
	"math/rand/v2"
	"strconv"
	"time"

	"google.golang.org/genproto/googleapis/rpc/code"
	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/latchkey-go/latchkey/internal/admission"
	"github.com/latchkey-go/latchkey/ratelimit"
)

// A Status is how a call ends that was not admitted, or was interrupted. The
// transport makes its own error of it. No part of it holds a key.
type Status struct {
	Reason  admission.Reason
	Code    code.Code // gRPC and Connect have the same numbers
	Text    string
	Details []proto.Message
	Retry   time.Duration // as in RetryInfo; 0 if there is none
	Err     error         // of reason Chosen: the transport's own error. Otherwise, if not nil, what the error matches
}

func (s *Status) Error() string { return s.Text }

// A told error is one of a KeyFunc of this module. Its text holds only names that
// the server's programmer chose, so a client may read it.
type told struct {
	err error // what it matches
	why string
}

func (t *told) Error() string { return t.err.Error() + ": " + t.why }
func (t *told) Unwrap() error { return t.err }

// rejection returns the status of a call that is not admitted because of err.
// ctx is the call's context.
func (g *Guard[C]) rejection(ctx context.Context, err error) *Status {
	why, ended := admission.ReasonOf(err), ctx.Err()
	s := &Status{Reason: why}
	switch {
	case why == admission.Chosen:
		s.Err = errors.Unwrap(errors.Unwrap(err)) // a KeyError of a Response
	case why == admission.Busy:
		return g.busy(err)
	case why == admission.BadKey:
		s.Code, s.Text = code.Code_INVALID_ARGUMENT, badKeyText(err)
	case why == admission.Fault:
		s.Code, s.Text = code.Code_INTERNAL, admission.FaultDetail
		if t := (*told)(nil); errors.As(err, &t) {
			s.Text = t.Error()
		}
	case why == admission.Ended && ended != nil && errors.Is(err, ended):
		s.Code, s.Text = code.Code_CANCELLED, ended.Error()
		if errors.Is(ended, context.DeadlineExceeded) {
			s.Code = code.Code_DEADLINE_EXCEEDED
		}
	default:
		s.Code, s.Retry = code.Code_UNAVAILABLE, awayRetry()
		s.Text, s.Details = "The lock service is unavailable."+tryAgain(s.Retry), []proto.Message{retryInfo(s.Retry)}
	}
	return s
}

// badKeyText returns what a client reads of err, of the reason BadKey.
func badKeyText(err error) string {
	var t *told
	switch {
	case errors.As(err, &t):
		return t.Error()
	case errors.Is(err, ratelimit.ErrNoKey):
		return ratelimit.ErrNoKey.Error()
	case errors.As(err, new(admission.KeyError)): // it may hold anything
		return ratelimit.ErrBadID.Error()
	}
	return err.Error() // the limiter's text has the reason, not the key
}

// busy returns the status of a call whose key other calls hold. The subject of
// the quota is the limiter's namespace, not the key.
func (g *Guard[C]) busy(err error) *Status {
	level, size, retry := g.Full(err)
	l := g.Limiters[max(0, level)]
	quota := &errdetails.QuotaFailure_Violation{Subject: string(l.Namespace()), Description: "calls at a time"}
	s := &Status{
		Reason: admission.Busy,
		Code:   code.Code_RESOURCE_EXHAUSTED,
		Text:   cmp.Or(g.BusyText, g.FullText(l, cmp.Or(size, l.Limit()))) + tryAgain(retry),
		Details: []proto.Message{g.errorInfo(l, "CONCURRENCY_LIMIT_REACHED"), retryInfo(retry), &errdetails.QuotaFailure{
			Violations: []*errdetails.QuotaFailure_Violation{quota},
		}},
		Retry: retry,
	}
	if g.Conflict {
		s.Code, s.Details = code.Code_ABORTED, []proto.Message{g.errorInfo(l, "CALL_IN_PROGRESS"), retryInfo(retry)}
	}
	return s
}

// lost returns the status of a call whose lock of l was lost.
func (g *Guard[C]) lost(l *ratelimit.Limiter) *Status {
	retry := awayRetry()
	return &Status{
		Reason:  admission.Interrupted,
		Code:    code.Code_ABORTED,
		Text:    "The call was interrupted because its lock was lost, and may have had effects." + tryAgain(retry),
		Details: []proto.Message{g.errorInfo(l, "LOCK_LOST"), retryInfo(retry)},
		Retry:   retry,
	}
}

// awayRetry returns how long a client should wait while locks cannot be
// acquired. A session takes about as long to reconnect. The time is random, so
// that clients that are rejected at one moment do not return at one.
func awayRetry() time.Duration {
	return (time.Second + rand.N(2*time.Second)).Round(time.Millisecond)
}

// tryAgain returns the sentence that says to wait for d.
func tryAgain(d time.Duration) string {
	if seconds := admission.Seconds(d); seconds > 1 {
		return " Try again in " + strconv.FormatInt(seconds, 10) + " seconds."
	}
	return " Try again in 1 second."
}

func (g *Guard[C]) errorInfo(l *ratelimit.Limiter, reason string) *errdetails.ErrorInfo {
	return &errdetails.ErrorInfo{Reason: reason, Domain: g.Domain, Metadata: map[string]string{"namespace": string(l.Namespace())}}
}

func retryInfo(d time.Duration) *errdetails.RetryInfo {
	return &errdetails.RetryInfo{RetryDelay: durationpb.New(d)}
}
