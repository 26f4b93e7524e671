package grpcmw_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	pb "google.golang.org/grpc/interop/grpc_testing"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/latchkey-go/latchkey/grpcmw"
	"github.com/latchkey-go/latchkey/internal/dbtest"
	"github.com/latchkey-go/latchkey/internal/httptesting"
	"github.com/latchkey-go/latchkey/internal/lockertest"
	"github.com/latchkey-go/latchkey/ratelimit"
	"github.com/latchkey-go/latchkey/sqllock"
)

// wantLost checks that err is the status of a call that was interrupted because
// the lock of the limit ns was lost.
func wantLost(t *testing.T, err error, ns sqllock.Namespace) {
	t.Helper()
	got := status.Convert(err)
	if kinds := detailKinds(got); got.Code() != codes.Aborted || !slices.Equal(kinds, []string{"ErrorInfo", "RetryInfo"}) {
		t.Errorf("%v with %v, want ABORTED with ErrorInfo and RetryInfo", err, kinds)
		return
	}
	if info := detail[*errdetails.ErrorInfo](got); info.GetReason() != "LOCK_LOST" || info.GetMetadata()["namespace"] != string(ns) || retryDelay(t, got) < time.Second {
		t.Errorf("%v with ErrorInfo %v, want LOCK_LOST of %s, and a second to wait", err, info, ns)
	}
}

// If the loss of the lock interrupts a handler, the call ends with a status that
// says so. It may have had effects, so gRPC's own retries are not told to repeat
// it. The handler's own error or response stays.
func TestInterruption(t *testing.T) {
	ctxErr := func(ctx context.Context) error { return ctx.Err() }
	own := func(err error) work { return func(context.Context) error { return err } }
	tests := []struct {
		name   string
		ends   error // the lock's contexts, while the handler runs; nil: nothing does
		result work
		want   codes.Code
	}{
		{"its context's error", sqllock.ErrLost, ctxErr, codes.Aborted},
		{"wrapped", sqllock.ErrLost, func(ctx context.Context) error { return fmt.Errorf("export: %w", ctx.Err()) }, codes.Aborted},
		{"a call of its own was canceled", sqllock.ErrLost, func(ctx context.Context) error { return status.FromContextError(ctx.Err()).Err() }, codes.Aborted},
		{"its context's cause", sqllock.ErrLost, context.Cause, codes.Aborted},
		{"with the session closed", sqllock.ErrClosed, ctxErr, codes.Aborted},
		{"the closed session's error", sqllock.ErrClosed, context.Cause, codes.Aborted},

		{"a response", sqllock.ErrLost, nothing, codes.OK},
		{"a status of its own", sqllock.ErrLost, own(status.Error(codes.NotFound, "no such export")), codes.NotFound},
		{"an error of its own", sqllock.ErrLost, own(errors.New("no such export")), codes.Unknown},
		{"a deadline of its own", sqllock.ErrLost, own(status.FromContextError(context.DeadlineExceeded).Err()), codes.DeadlineExceeded},

		{"too long", ratelimit.ErrMaxHold, ctxErr, codes.DeadlineExceeded},
		{"too long, its cause", ratelimit.ErrMaxHold, context.Cause, codes.DeadlineExceeded},
		{"too long, a status of its own", ratelimit.ErrMaxHold, own(status.Error(codes.NotFound, "none")), codes.NotFound},

		{"canceled by itself", nil, own(context.Canceled), codes.Canceled},
		{"another lock's loss", nil, own(sqllock.ErrLost), codes.Unknown},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			each(t, func(t *testing.T, r road) {
				s := &service{work: func(ctx context.Context) error {
					if tt.ends != nil {
						lock, _ := sqllock.FromContext(ctx, namespace.Key(secret))
						lock.Cancel(tt.ends) // as its loss does
						httptesting.Receive(t, ctx.Done(), "the end of the context")
					}
					return tt.result(ctx)
				}}
				client := start(t, s, limited(r.over(ratelimit.OneAtATime(sqllock.NewMemory(), namespace)))...)
				var trailer metadata.MD
				err := r.call(t.Context(), client, secret, grpc.Trailer(&trailer))
				if got := status.Code(err); got != tt.want || trailer["grpc-retry-pushback-ms"] != nil {
					t.Errorf("status %v with trailer %v, want %v without a pushback", got, trailer, tt.want)
				}
				if tt.want == codes.Aborted {
					wantLost(t, err, namespace)
				}
			})
		})
	}
}

// The loss of a connection to PostgreSQL ends the handler's context and the
// call, with a status that clients retry. The next call gets a lock on a new
// connection.
func TestLossEndsHandler(t *testing.T) {
	dbtest.EachDriver(t, func(t *testing.T, driver, dsn string) {
		session, db := dbtest.Session(t, driver, dsn), dbtest.Open(t, driver, dsn)
		for _, r := range roads {
			s := &service{work: func(ctx context.Context) error {
				if ctx.Err() != nil {
					return errors.New("ended before the loss")
				}
				httptesting.Terminate(t, db)
				httptesting.Receive(t, ctx.Done(), "the loss")
				if cause := context.Cause(ctx); !errors.Is(cause, sqllock.ErrLost) {
					t.Errorf("%s: cause %v", r.name, cause)
				}
				return ctx.Err()
			}}
			client := start(t, s, limited(r.over(ratelimit.OneAtATime(session, namespace)))...)
			wantLost(t, r.call(t.Context(), client, "alice"), namespace)
			s.work = nothing
			lockertest.Eventually(t, "a call on a new connection", func() bool {
				return r.call(t.Context(), client, "alice") == nil
			})
		}
	})
}

// The end of the lock of any level ends the handler's context and the call, with
// a status that names the level. A dry run of the level ends nothing. If all
// locks end together, the status names the first level that is not in a dry run.
func TestStackNamesTheLostLevel(t *testing.T) {
	const lost, tooLong, dry = "lost", "too long", "dry run"
	for kind, call := range calls {
		for at, ns := range three {
			for name, policy := range map[string][]ratelimit.Option{lost: nil, tooLong: {ratelimit.WithMaxHold(1)}, dry: {ratelimit.WithDryRun()}} {
				t.Run(kind+"/"+string(ns)+"/"+name, func(t *testing.T) {
					locks, all := sqllock.NewMemory(), sqllock.NewMemory()
					levels := threeLevels(sqllock.NewMemory(), -1)
					levels[at].Limiter = ratelimit.OneAtATime(locks, ns, policy...)
					lose := func(locks *sqllock.Memory) work {
						return func(ctx context.Context) error {
							if name == tooLong {
								<-ctx.Done()
							} else if locks.Lose() == 0 {
								t.Error("no lock was lost")
							}
							return ctx.Err()
						}
					}
					err := call(t.Context(), levels, lose(locks))
					switch got := status.Convert(err); {
					case name == lost:
						wantLost(t, err, ns)
					case name == tooLong && (got.Code() != codes.DeadlineExceeded || got.Message() != fmt.Sprintf("The call took longer than the limit %q allows.", ns)):
						t.Errorf("%v, want DEADLINE_EXCEEDED of %s", err, ns)
					case name == dry:
						if err != nil {
							t.Errorf("%v, want no error", err)
						}
						first := three[0]
						if at == 0 {
							first = three[1]
						}
						wantLost(t, call(t.Context(), threeLevels(all, at, policy...), lose(all)), first)
					}
				})
			}
		}
	}
}

// Of two interceptors the one whose lock ended the context chooses the status,
// which names its limit.
func TestInterruptionNamesItsLimit(t *testing.T) {
	for kind, call := range calls {
		for _, ending := range []string{"tenants", "users"} {
			locks := sqllock.NewMemory()
			err := call(t.Context(), one(ratelimit.OneAtATime(locks, "tenants"), constant("acme")), func(ctx context.Context) error {
				held := map[string]*sqllock.Lock{}
				held["tenants"], _ = sqllock.FromContext(ctx)
				return call(ctx, one(ratelimit.OneAtATime(locks, "users"), constant(secret)), func(ctx context.Context) error {
					held["users"], _ = sqllock.FromContext(ctx) // the inner one
					held[ending].Cancel(ratelimit.ErrMaxHold)   // as its end does
					httptesting.Receive(t, ctx.Done(), "the end of the context")
					return ctx.Err()
				})
			})
			if got := status.Convert(err); got.Code() != codes.DeadlineExceeded || !strings.Contains(got.Message(), ending) {
				t.Errorf("%s: status %v; want DEADLINE_EXCEEDED of %s", kind, got, ending)
			}
		}
	}
}

// A dry run inside another limit ends nothing. The loss of the lock around ends
// the call as without the dry run, and the handler sees it at once.
func TestDryRunInsideAnother(t *testing.T) {
	for kind, call := range calls {
		for _, which := range []string{"the dry run's", "the other's"} {
			around, dry := sqllock.NewMemory(), sqllock.NewMemory()
			err := call(t.Context(), one(ratelimit.OneAtATime(around, "around"), constant("acme")), func(ctx context.Context) error {
				return call(ctx, one(ratelimit.OneAtATime(dry, "dry", ratelimit.WithDryRun()), constant(secret)), func(ctx context.Context) error {
					if lock, ok := sqllock.FromContext(ctx); !ok || lock.Key().Namespace() != "around" {
						t.Errorf("%s: the context carries lock %v, %v; want the other's", kind, lock, ok)
					}
					lost, ends := around, true
					if which == "the dry run's" {
						lost, ends = dry, false
					}
					if n := lost.Lose(); n != 1 {
						t.Errorf("%s: %d locks were lost", kind, n)
					}
					if ended := ctx.Err() != nil; ended != ends {
						t.Errorf("%s: after the loss of %s lock the context has ended: %v", kind, which, ended)
					}
					return ctx.Err()
				})
			})
			if which == "the other's" {
				wantLost(t, err, "around")
			} else if err != nil {
				t.Errorf("%s: %v, want no error", kind, err)
			}
		}
	}
}

// A stream whose lock is lost, that of any level, neither sends nor receives,
// also if the loss comes while RecvMsg waits. So a handler that does not watch
// its context stops, too. The trailer has no pushback. In a dry run the loss
// fails nothing.
func TestLossEndsMessages(t *testing.T) {
	for _, tt := range []struct {
		name   string
		policy []ratelimit.Option
		code   codes.Code
	}{
		{"in earnest", nil, codes.Aborted},
		{"in earnest, told to stop before", []ratelimit.Option{ratelimit.WithMaxHold(1)}, codes.Aborted},
		{"dry run", []ratelimit.Option{ratelimit.WithDryRun()}, codes.OK},
	} {
		for source, key := range map[string]grpcmw.KeyFunc{"at the start": constant("alice"), "first message": grpcmw.Field("response_status.message")} {
			for at, ns := range three {
				lost, message := sqllock.NewMemory(), new(pb.StreamingOutputCallRequest)
				client := &losing{locks: lost}
				levels := threeLevels(sqllock.NewMemory(), -1)
				levels[at] = grpcmw.Level{Limiter: ratelimit.OneAtATime(lost, ns, tt.policy...), Key: key}
				err := grpcmw.StreamStackInterceptor(levels, grpcmw.WithPushback(1))(nil, client, streamInfo, func(_ any, stream grpc.ServerStream) error {
					if err := stream.RecvMsg(message); err != nil {
						return err
					}
					waited, sent, received := stream.RecvMsg(message), stream.SendMsg(nil), stream.RecvMsg(message)
					for what, err := range map[string]error{"RecvMsg in the loss": waited, "SendMsg": sent, "RecvMsg": received} {
						if status.Code(err) != tt.code || err != nil && !errors.Is(err, sqllock.ErrLost) {
							t.Errorf("%s, %s, %s: %s after the loss: %v, want %v", tt.name, source, ns, what, err, tt.code)
						}
					}
					return received
				})
				if status.Code(err) != tt.code || client.trailer != nil {
					t.Errorf("%s, %s, %s: the call ended with %v and trailer %v, want %v and none", tt.name, source, ns, err, client.trailer, tt.code)
				}
			}
		}
	}
}

// A losing stream loses its lock while its second message is received.
type losing struct {
	oneMessage
	locks    *sqllock.Memory
	received int
	trailer  metadata.MD
}

func (s *losing) SetTrailer(md metadata.MD) { s.trailer = md }

func (s *losing) RecvMsg(into any) error {
	if s.received++; s.received == 2 {
		s.locks.Lose()
	}
	return oneMessage{"alice"}.RecvMsg(into)
}
