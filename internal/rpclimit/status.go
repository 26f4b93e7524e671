package rpclimit

import (
	"cmp"
	"math/rand/v2"
	"strconv"
	"time"

	"google.golang.org/genproto/googleapis/rpc/code"
	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"
)

// The reasons in ErrorInfo.
const (
	reasonQuota    = "CONCURRENCY_LIMIT_REACHED"
	reasonConflict = "CALL_IN_PROGRESS"
	reasonLost     = "LOCK_LOST"
)

// The texts of statuses INTERNAL: a KeyFunc has failed, or a limit's policy.
const (
	FaultText  = "The server could not find out whom the call is for."
	PolicyText = "The server could not find out what the limit of the call is."
)

// A Status is how a call ends. No part of it holds a key.
type Status struct {
	Code    code.Code // gRPC and Connect have the same numbers
	Text    string
	Details []proto.Message
	Retry   time.Duration // as in RetryInfo; 0 if there is none
}

// A Limit is what the statuses say about a limiter.
type Limit struct {
	Namespace string
	Size      int
	Domain    string // of ErrorInfo
	BusyText  string // "" for the limit's name and size
	Conflict  bool   // a busy key is ABORTED, and no quota
}

// Busy returns the status of a call whose key may be free after retry. The
// subject of the quota is the limiter's namespace, not the key.
func (l Limit) Busy(retry time.Duration) Status {
	s := Status{
		Code:    code.Code_RESOURCE_EXHAUSTED,
		Text:    cmp.Or(l.BusyText, l.fullText()) + tryAgain(retry),
		Details: []proto.Message{l.errorInfo(reasonQuota), retryInfo(retry), l.quotaFailure()},
		Retry:   retry,
	}
	if l.Conflict {
		s.Code, s.Details = code.Code_ABORTED, []proto.Message{l.errorInfo(reasonConflict), retryInfo(retry)}
	}
	return s
}

// Away returns the status of a call while locks cannot be acquired.
func Away() Status {
	retry := awayRetry()
	return Status{
		Code:    code.Code_UNAVAILABLE,
		Text:    "The lock service is unavailable." + tryAgain(retry),
		Details: []proto.Message{retryInfo(retry)},
		Retry:   retry,
	}
}

// lost returns the status of a call whose lock was lost.
func (l Limit) lost() Status {
	retry := awayRetry()
	return Status{
		Code:    code.Code_ABORTED,
		Text:    "The call was interrupted because its lock was lost." + tryAgain(retry),
		Details: []proto.Message{l.errorInfo(reasonLost), retryInfo(retry)},
		Retry:   retry,
	}
}

// awayRetry returns how long a client should wait while locks cannot be
// acquired. A session takes about as long to reconnect. The time is random, so
// that clients that are rejected at one moment do not return at one.
func awayRetry() time.Duration {
	return (time.Second + rand.N(2*time.Second)).Round(time.Millisecond)
}

// fullText returns the sentence that names the limit that is full.
func (l Limit) fullText() string {
	name, n := strconv.Quote(l.Namespace), strconv.Itoa(l.Size)
	if l.Size == 1 {
		return "The limit " + name + " admits one call at a time, and another call is in progress."
	}
	return "The limit " + name + " admits " + n + " calls at a time, and " + n + " are in progress."
}

// tryAgain returns the sentence that says to wait for d.
func tryAgain(d time.Duration) string {
	if seconds := Seconds(d); seconds > 1 {
		return " Try again in " + strconv.FormatInt(seconds, 10) + " seconds."
	}
	return " Try again in 1 second."
}

// Seconds returns d in whole seconds, rounded up.
func Seconds(d time.Duration) int64 {
	seconds := int64(d / time.Second)
	if d%time.Second > 0 {
		seconds++
	}
	return seconds
}

func (l Limit) errorInfo(reason string) *errdetails.ErrorInfo {
	return &errdetails.ErrorInfo{Reason: reason, Domain: l.Domain, Metadata: map[string]string{"namespace": l.Namespace}}
}

func (l Limit) quotaFailure() *errdetails.QuotaFailure {
	return &errdetails.QuotaFailure{Violations: []*errdetails.QuotaFailure_Violation{{
		Subject:     l.Namespace,
		Description: "calls at a time",
	}}}
}

func retryInfo(d time.Duration) *errdetails.RetryInfo {
	return &errdetails.RetryInfo{RetryDelay: durationpb.New(d)}
}
