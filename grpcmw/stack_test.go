package grpcmw_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/grpc-ecosystem/go-grpc-middleware/v2/interceptors"
	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	pb "google.golang.org/grpc/interop/grpc_testing"
	"google.golang.org/grpc/status"

	"github.com/latchkey-go/latchkey/grpcmw"
	"github.com/latchkey-go/latchkey/ratelimit"
	"github.com/latchkey-go/latchkey/sqllock"
)

// silent is a stream whose client sends no message.
type silent struct{ oneMessage }

func (silent) RecvMsg(any) error { return io.EOF }

// Each level decides on a call with the status that it has alone. The status
// names it. No place is left on another level.
func TestStackStatus(t *testing.T) {
	opts := func(o ...ratelimit.Option) []ratelimit.Option { return o }
	quota, conflict, retry := []string{"ErrorInfo", "RetryInfo", "QuotaFailure"}, []string{"ErrorInfo", "RetryInfo"}, []string{"RetryInfo"}
	open, dry := ratelimit.WithFailOpen(), ratelimit.WithDryRun()
	tests := []struct {
		name    string
		locks   error // of the level's Locker; nil for one that is free
		key     error // of its KeyFunc
		policy  []ratelimit.Option
		opts    []grpcmw.Option
		want    codes.Code
		details []string
		log     string // part of the line in the log, "" for none
	}{
		{"free", nil, nil, nil, nil, codes.OK, nil, ""},
		{"full", sqllock.ErrHeld, nil, nil, nil, codes.ResourceExhausted, quota, ""},
		{"full, conflict", sqllock.ErrHeld, nil, nil, []grpcmw.Option{grpcmw.WithConflict()}, codes.Aborted, conflict, ""},
		{"full, bypassed", sqllock.ErrHeld, grpcmw.ErrBypass, nil, nil, codes.OK, nil, ""},
		{"full, in a dry run", sqllock.ErrHeld, nil, opts(dry), nil, codes.OK, nil, ""},
		{"away", sqllock.ErrUnavailable, nil, nil, nil, codes.Unavailable, retry, ""},
		{"away, fails open", sqllock.ErrUnavailable, nil, opts(open), nil, codes.OK, nil, ""},
		{"no room", sqllock.ErrCapacity, nil, opts(open), nil, codes.Unavailable, retry, ""},
		{"no key", nil, grpcmw.ErrNoKey, nil, nil, codes.InvalidArgument, nil, "a call has no key"},
		{"no key, in a dry run", nil, grpcmw.ErrNoKey, opts(dry), nil, codes.OK, nil, "a call has no key"},
		{"bad key", nil, ratelimit.ErrBadID, nil, nil, codes.InvalidArgument, nil, ""},
		{"long key", nil, nil, opts(ratelimit.WithMaxIDLen(1)), nil, codes.InvalidArgument, nil, ""},
		{"a status", nil, status.Error(codes.Unauthenticated, "log in"), nil, nil, codes.Unauthenticated, nil, ""},
		{"its own error", nil, errors.New("oops"), nil, nil, codes.Internal, nil, "a KeyFunc failed"},
	}
	for kind, call := range calls {
		for _, tt := range tests {
			for at, ns := range three {
				t.Run(kind+"/"+tt.name+"/"+string(ns), func(t *testing.T) {
					var log logbook
					var levels []grpcmw.Level
					for i, ns := range three {
						var locks sqllock.Locker = sqllock.NewMemory()
						key := constant("alice-" + strconv.Itoa(i))
						policy := opts(ratelimit.WithRetryAfter(func(time.Duration) time.Duration { return time.Duration(i+2) * time.Second }))
						if i == at {
							if policy = append(policy, tt.policy...); tt.locks != nil {
								locks = broken{tt.locks}
							}
							if tt.key != nil {
								key = fails(tt.key)
							}
						}
						levels = append(levels, grpcmw.Level{Limiter: ratelimit.AtMost(i+1, locks, ns, policy...), Key: key})
					}
					ran := false
					err := call(t.Context(), levels, func(context.Context) error { ran = true; return nil }, append(slices.Clone(tt.opts), log.option())...)
					got := status.Convert(err)
					if got.Code() != tt.want || !slices.Equal(detailKinds(got), tt.details) || ran != (tt.want == codes.OK) {
						t.Errorf("status %v with %v, the handler ran: %v; want %v with %v", got.Code(), detailKinds(got), ran, tt.want, tt.details)
					}
					for i, level := range levels {
						s := level.Limiter.Stats()
						if s.Active > 0 {
							t.Errorf("%d places of %s are left", s.Active, level.Limiter.Namespace())
						}
						if i != at && ran != (s.Requests[ratelimit.Admitted] == 1) {
							t.Errorf("the handler ran: %v, and %s has admitted %d", ran, level.Limiter.Namespace(), s.Requests[ratelimit.Admitted])
						}
					}
					if tt.log == "" {
						log.Want(t, "a call", 0)
					} else {
						log.Want(t, "a call", 1, tt.log, "namespace="+string(ns))
					}
					checkNames(t, got, levels[at].Limiter)
				})
			}
		}
	}
}

// checkNames checks that the details and the text of a status name full, if
// they name a limit.
func checkNames(t *testing.T, s *status.Status, full *ratelimit.Limiter) {
	t.Helper()
	ns := string(full.Namespace())
	for _, detail := range s.Details() {
		switch d := detail.(type) {
		case *errdetails.ErrorInfo:
			if got := d.GetMetadata()["namespace"]; got != ns {
				t.Errorf("ErrorInfo of %s, want %s", got, ns)
			}
			if want := fmt.Sprintf("The limit %q admits ", ns); !strings.HasPrefix(s.Message(), want) {
				t.Errorf("text %q, want %q", s.Message(), want)
			}
			if got, want := retryDelay(t, s), time.Duration(full.Limit()+1)*time.Second; got != want {
				t.Errorf("RetryInfo says %v, want %v", got, want)
			}
		case *errdetails.QuotaFailure:
			if got := d.GetViolations()[0].GetSubject(); got != ns {
				t.Errorf("QuotaFailure of %s, want %s", got, ns)
			}
		}
	}
}

// A kept status is that of its level. Two levels that are full in turn are not
// confused.
func TestStackBusyInTurn(t *testing.T) {
	locks := sqllock.NewMemory()
	wait := ratelimit.WithRetryAfter(func(time.Duration) time.Duration { return 2 * time.Second })
	levels := levelsOf(func(_ int, ns sqllock.Namespace) *ratelimit.Limiter { return ratelimit.OneAtATime(locks, ns, wait) })
	intercept := grpcmw.UnaryStackInterceptor(levels)
	for range 3 {
		for _, level := range levels {
			lock, err := level.Limiter.Acquire(t.Context(), "alice")
			if err != nil {
				t.Fatal(err)
			}
			_, err = intercept(t.Context(), nil, unaryInfo, nil)
			got := status.Convert(err)
			if got.Code() != codes.ResourceExhausted {
				t.Error(err)
			}
			checkNames(t, got, level.Limiter)
			_ = lock.Unlock()
		}
	}
}

// The KeyFuncs of a stream are called in order, each once. The one that needs
// the first message is called again with it. All locks come with it.
func TestStackKeyFuncsOfAStream(t *testing.T) {
	own := errors.New("oops")
	tests := []struct {
		name    string
		needs   string // levels that need the first message
		fails   string // a level that fails, if it does not need the message
		start   string // levels that were called before the handler
		called  string // all of them
		want    codes.Code
		atStart bool // the locks are there at the start
	}{
		{"none", "", "", "012", "012", codes.OK, true},
		{"the first", "0", "", "0", "0012", codes.OK, false},
		{"the second", "1", "", "01", "0112", codes.OK, false},
		{"the last", "2", "", "012", "0122", codes.OK, false},
		{"all", "012", "", "0", "0012", codes.OK, false},
		{"an error before", "1", "0", "0", "0", codes.Internal, false},
		{"an error behind", "1", "2", "01", "0112", codes.Internal, false},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			locks, called := sqllock.NewMemory(), ""
			var log logbook
			var levels []grpcmw.Level
			for i, ns := range three {
				name := strconv.Itoa(i)
				levels = append(levels, grpcmw.Level{Limiter: ratelimit.OneAtATime(locks, ns), Key: func(_ context.Context, call interceptors.CallMeta) (string, error) {
					called += name
					switch {
					case strings.Contains(tt.needs, name) && call.ReqOrNil == nil:
						return "", grpcmw.ErrNeedMessage
					case strings.Contains(tt.fails, name) && tt.fails != "":
						return "", own
					}
					return "alice", nil
				}})
			}
			start := called
			held := func(ctx context.Context) (n int) {
				for _, ns := range three {
					if _, ok := sqllock.FromContext(ctx, ns.Key("alice")); ok {
						n++
					}
				}
				return n
			}
			err := grpcmw.StreamStackInterceptor(levels, log.option())(nil, oneMessage{"alice"}, streamInfo, func(_ any, stream grpc.ServerStream) error {
				start = called
				if n := held(stream.Context()); (n == 3) != tt.atStart || n != 0 && n != 3 {
					t.Errorf("%d locks at the start", n)
				}
				if err := stream.RecvMsg(&pb.StreamingOutputCallRequest{}); err != nil {
					return err
				}
				if n := held(stream.Context()); n != 3 {
					t.Errorf("%d locks with the first message", n)
				}
				return nil
			})
			if start == "" {
				start = called // the handler did not run
			}
			if status.Code(err) != tt.want || start != tt.start || called != tt.called {
				t.Errorf("%v, called %s at the start and %s in all; want %v, %s and %s", err, start, called, tt.want, tt.start, tt.called)
			}
			wantPlacesFree(t, levels)
		})
	}
}

// A stream that has not received its first message yet must not send, and needs
// one, unless all levels are in a dry run. The level that is not counts it.
func TestStackWithoutFirstMessage(t *testing.T) {
	message := grpcmw.Field("response_status.message")
	tests := []struct {
		name       string
		dry        string // levels in a dry run
		needs      string // levels that need the message
		send, recv codes.Code
		refused    [3]uint64 // failures that each level has counted
	}{
		{"in earnest", "", "1", codes.FailedPrecondition, codes.InvalidArgument, [3]uint64{1, 1, 0}},
		{"the one that needs it is dry", "1", "1", codes.FailedPrecondition, codes.OK, [3]uint64{1, 0, 0}},
		{"the first is dry", "0", "12", codes.FailedPrecondition, codes.InvalidArgument, [3]uint64{0, 2, 0}},
		{"all are dry", "012", "01", codes.OK, codes.OK, [3]uint64{}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			var levels []grpcmw.Level
			for i, ns := range three {
				var policy []ratelimit.Option
				if strings.Contains(tt.dry, strconv.Itoa(i)) {
					policy = append(policy, ratelimit.WithDryRun())
				}
				key := constant("alice")
				if strings.Contains(tt.needs, strconv.Itoa(i)) {
					key = message
				}
				levels = append(levels, grpcmw.Level{Limiter: ratelimit.OneAtATime(sqllock.NewMemory(), ns, policy...), Key: key})
			}
			err := grpcmw.StreamStackInterceptor(levels)(nil, silent{}, streamInfo, func(_ any, stream grpc.ServerStream) error {
				for range 2 {
					if err := stream.SendMsg(nil); status.Code(err) != tt.send {
						t.Errorf("SendMsg: %v, want %v", err, tt.send)
					}
				}
				if err := stream.RecvMsg(nil); status.Code(ignoreEOF(err)) != tt.recv {
					t.Errorf("RecvMsg: %v, want %v", err, tt.recv)
				}
				for what, err := range map[string]error{"the context's cause": context.Cause(stream.Context()), "SendMsg then": stream.SendMsg(nil)} {
					if status.Code(err) != tt.recv {
						t.Errorf("%s: %v, want %v", what, err, tt.recv)
					}
				}
				return nil // such a handler thinks that all is well
			})
			if status.Code(err) != tt.recv {
				t.Errorf("the call ended with %v, want %v", err, tt.recv)
			}
			for i, level := range levels {
				s := level.Limiter.Stats()
				if got := s.Requests[ratelimit.Failed]; got != tt.refused[i] || s.Active != 0 {
					t.Errorf("%s has counted %d failures, want %d; %d places are left", three[i], got, tt.refused[i], s.Active)
				}
			}
		})
	}
}

// The loss of the lock of any level ends the handler's context and the call,
// with a status that names the level. A dry run of the level ends nothing.
func TestStackLosesOneLock(t *testing.T) {
	for kind, call := range calls {
		for at, ns := range three {
			for name, policy := range map[string][]ratelimit.Option{"in earnest": nil, "dry run": {ratelimit.WithDryRun()}} {
				t.Run(kind+"/"+string(ns)+"/"+name, func(t *testing.T) {
					lost := sqllock.NewMemory()
					levels := levelsWith(sqllock.NewMemory(), -1)
					levels[at].Limiter = ratelimit.OneAtATime(lost, ns, policy...)
					err := call(t.Context(), levels, func(ctx context.Context) error {
						if n := lost.Lose(); n != 1 {
							t.Errorf("%d locks were lost", n)
						}
						return ctx.Err()
					})
					if policy == nil {
						wantLost(t, err, ns)
					} else if err != nil {
						t.Errorf("%v, want no error", err)
					}
				})
			}
		}
	}
}

// If all locks end together, as those of one Session do, the status names the
// first level that is not in a dry run: the call does not depend on the others.
func TestStackLosesAllLocks(t *testing.T) {
	for kind, call := range calls {
		for dry, want := range []sqllock.Namespace{three[1], three[0], three[0]} {
			t.Run(kind+"/dry "+string(three[dry]), func(t *testing.T) {
				locks := sqllock.NewMemory()
				err := call(t.Context(), levelsWith(locks, dry, ratelimit.WithDryRun()), func(ctx context.Context) error {
					if n := locks.Lose(); n != len(three) {
						t.Errorf("%d locks were lost", n)
					}
					return ctx.Err()
				})
				wantLost(t, err, want)
			})
		}
	}
}

// A handler finds out by Held that it has the lock of a level, and so need not
// acquire it. That of a dry run does not count.
func TestStackIsHeld(t *testing.T) {
	for kind, call := range calls {
		for dry := range three {
			t.Run(kind+"/dry "+string(three[dry]), func(t *testing.T) {
				err := call(t.Context(), levelsWith(sqllock.NewMemory(), dry, ratelimit.WithDryRun()), func(ctx context.Context) error {
					for i, ns := range three {
						if got, want := sqllock.Held(ctx, ns.Key("alice")), i != dry; got != want {
							t.Errorf("Held of %s: %v, want %v", ns, got, want)
						}
					}
					return nil
				})
				if err != nil {
					t.Error(err)
				}
			})
		}
	}
}

// After the loss of any level's lock a stream sends and receives nothing.
func TestStackLossEndsMessages(t *testing.T) {
	for at, ns := range three {
		lost := sqllock.NewMemory()
		levels := levelsWith(sqllock.NewMemory(), -1)
		levels[at].Limiter = ratelimit.OneAtATime(lost, ns)
		_ = grpcmw.StreamStackInterceptor(levels)(nil, oneMessage{"alice"}, streamInfo, func(_ any, stream grpc.ServerStream) error {
			lost.Lose()
			for what, err := range map[string]error{"SendMsg": stream.SendMsg(nil), "RecvMsg": stream.RecvMsg(nil)} {
				if !errors.Is(err, sqllock.ErrLost) || status.Code(err) != codes.Aborted {
					t.Errorf("%s after the loss of %s: %v", what, ns, err)
				}
			}
			return nil
		})
	}
}

// The status of a call that took too long names the level that says so.
func TestStackMaxHold(t *testing.T) {
	for kind, call := range calls {
		for at, ns := range three {
			t.Run(kind+"/"+string(ns), func(t *testing.T) {
				levels := levelsWith(sqllock.NewMemory(), at, ratelimit.WithMaxHold(time.Millisecond))
				err := call(t.Context(), levels, func(ctx context.Context) error {
					<-ctx.Done()
					return ctx.Err()
				})
				got := status.Convert(err)
				if want := fmt.Sprintf("The call took longer than the limit %q allows.", ns); got.Code() != codes.DeadlineExceeded || got.Message() != want {
					t.Errorf("%v, want %s", err, want)
				}
			})
		}
	}
}

// If all levels are bypassed, the call is not limited at all.
func TestStackBypassed(t *testing.T) {
	var levels []grpcmw.Level
	for _, ns := range three {
		levels = append(levels, grpcmw.Level{Limiter: ratelimit.OneAtATime(broken{sqllock.ErrHeld}, ns), Key: fails(grpcmw.ErrBypass)})
	}
	for kind, call := range calls {
		err := call(t.Context(), levels, func(ctx context.Context) error {
			if _, ok := sqllock.FromContext(ctx); ok {
				t.Errorf("%s: the context carries a lock", kind)
			}
			return ctx.Err()
		})
		if err != nil {
			t.Errorf("%s: %v", kind, err)
		}
	}
}

// One id on two levels of one limit is a call that nothing can admit. It ends at
// once, and the log says why.
func TestStackOneIDTwice(t *testing.T) {
	locks := sqllock.NewMemory()
	levels := []grpcmw.Level{
		{Limiter: ratelimit.AtMost(2, locks, "account"), Key: constant(secret)},
		{Limiter: ratelimit.OneAtATime(locks, "user"), Key: constant(secret)},
		{Limiter: ratelimit.AtMost(2, locks, "account"), Key: constant(secret)},
	}
	for kind, call := range calls {
		var log logbook
		err := call(t.Context(), levels, func(context.Context) error { return nil }, log.option())
		if got := status.Convert(err); got.Code() != codes.InvalidArgument || strings.Contains(got.Message(), secret) {
			t.Errorf("%s: %v, want INVALID_ARGUMENT", kind, err)
		}
		log.Want(t, kind, 1, "level=ERROR", "two places of one limit", "namespace=account")
	}
}

// A level whose limit is on the road already is reported, whichever it is.
func TestStackReportsTwice(t *testing.T) {
	for at, ns := range three {
		locks := sqllock.NewMemory()
		levels := levelsOf(func(_ int, ns sqllock.Namespace) *ratelimit.Limiter { return ratelimit.AtMost(2, locks, ns) })
		around := grpcmw.UnaryServerInterceptor(ratelimit.AtMost(2, locks, three[at]), constant("alice"))
		var log logbook
		inner := grpcmw.UnaryStackInterceptor(levels, log.option())
		_, err := around(t.Context(), nil, unaryInfo, func(ctx context.Context, req any) (any, error) {
			return inner(ctx, req, unaryInfo, func(context.Context, any) (any, error) { return nil, nil })
		})
		if err != nil {
			t.Error(err)
		}
		log.Want(t, string(ns), 1, "two places of one limit", "namespace="+string(ns), "limit=2")
	}
}

func TestStackMisusePanics(t *testing.T) {
	l := ratelimit.OneAtATime(sqllock.NewMemory(), namespace)
	good := grpcmw.Level{Limiter: l, Key: constant("alice")}
	for name, levels := range map[string][]grpcmw.Level{
		"no levels":   nil,
		"nil Limiter": {good, {Key: good.Key}},
		"nil Key":     {good, {Limiter: l}},
	} {
		for which, make := range map[string]func(){
			"UnaryStackInterceptor":  func() { grpcmw.UnaryStackInterceptor(levels) },
			"StreamStackInterceptor": func() { grpcmw.StreamStackInterceptor(levels) },
		} {
			func() {
				defer func() {
					if text, _ := recover().(string); !strings.HasPrefix(text, "grpcmw: "+which+" needs ") {
						t.Errorf("%s: panic %q", name, text)
					}
				}()
				make()
			}()
		}
	}
}
