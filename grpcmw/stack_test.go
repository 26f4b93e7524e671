package grpcmw_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"
	"testing"

	"github.com/grpc-ecosystem/go-grpc-middleware/v2/interceptors"
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
// with a status that names the level. So does the end of its WithMaxHold. A dry
// run of the level ends nothing.
func TestStackLosesOneLock(t *testing.T) {
	const lost, tooLong, dry = "lost", "too long", "dry run"
	for kind, call := range calls {
		for at, ns := range three {
			for name, policy := range map[string][]ratelimit.Option{lost: nil, tooLong: {ratelimit.WithMaxHold(1)}, dry: {ratelimit.WithDryRun()}} {
				t.Run(kind+"/"+string(ns)+"/"+name, func(t *testing.T) {
					locks := sqllock.NewMemory()
					levels := levelsWith(sqllock.NewMemory(), -1)
					levels[at].Limiter = ratelimit.OneAtATime(locks, ns, policy...)
					err := call(t.Context(), levels, func(ctx context.Context) error {
						if name == tooLong {
							<-ctx.Done()
						} else if n := locks.Lose(); n != 1 {
							t.Errorf("%d locks were lost", n)
						}
						return ctx.Err()
					})
					got := status.Convert(err)
					switch {
					case name == lost:
						wantLost(t, err, ns)
					case name == tooLong && (got.Code() != codes.DeadlineExceeded || got.Message() != fmt.Sprintf("The call took longer than the limit %q allows.", ns)):
						t.Errorf("%v, want DEADLINE_EXCEEDED of %s", err, ns)
					case name == dry && err != nil:
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
