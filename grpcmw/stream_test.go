package grpcmw_test

import (
	"context"
	"errors"
	"io"
	"strconv"
	"strings"
	"testing"

	"github.com/grpc-ecosystem/go-grpc-middleware/v2/interceptors"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	pb "google.golang.org/grpc/interop/grpc_testing"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/latchkey-go/latchkey/grpcmw"
	"github.com/latchkey-go/latchkey/internal/httptesting"
	"github.com/latchkey-go/latchkey/ratelimit"
	"github.com/latchkey-go/latchkey/sqllock"
)

// openDuplex opens a bidi stream to a server with handler, and sends its first
// message if key is not empty.
func openDuplex(t *testing.T, limit *ratelimit.Limiter, key string, handler func(duplexServer) error) pb.TestService_FullDuplexCallClient {
	t.Helper()
	client := start(t, &service{duplex: handler}, limited(one(limit, grpcmw.Field("response_status.message")), grpcmw.WithPushback(1))...)
	stream, err := client.FullDuplexCall(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if key != "" {
		err := stream.Send(&pb.StreamingOutputCallRequest{ResponseStatus: named(key)})
		if ignoreEOF(err) != nil { // io.EOF: the call has ended, Recv says how
			t.Fatal(err)
		}
	}
	return stream
}

// A context taken from the stream before its first message has the lock after
// it, and so have the contexts made from it.
func TestContextTakenBeforeFirstMessage(t *testing.T) {
	locks := sqllock.NewMemory()
	type mark struct{}
	stream := openDuplex(t, ratelimit.OneAtATime(locks, namespace), "alice", func(stream duplexServer) error {
		ctx := stream.Context()
		child, cancel := context.WithCancel(context.WithValue(ctx, mark{}, "kept"))
		defer cancel()
		if _, ok := sqllock.FromContext(child); ok {
			return errors.New("a lock before the first message")
		}
		if _, err := stream.Recv(); err != nil {
			return err
		}
		lock, ok := sqllock.FromContext(child)
		if !ok || lock.Err() != nil || lock.Key() != namespace.Key("alice") {
			return errors.New("no lock after the first message")
		}
		if stream.Context() != ctx || child.Value(mark{}) != "kept" {
			return errors.New("the context has changed")
		}
		if _, ok := metadata.FromIncomingContext(child); !ok {
			return errors.New("the metadata is gone")
		}
		// As a loss would.
		stop := errors.New("stop")
		lock.Cancel(stop)
		if ctx.Err() == nil || context.Cause(ctx) != stop {
			return errors.New("the end of the lock's work does not show at once")
		}
		<-child.Done()
		if context.Cause(child) != stop {
			return context.Cause(child)
		}
		return status.Error(codes.OutOfRange, "as expected")
	})
	if _, err := stream.Recv(); status.Code(err) != codes.OutOfRange {
		t.Error(err)
	}
}

// A rejection at the first message ends the call, whatever the handler does.
// Recv and Send return it, and the context ends with it.
func TestRefusedAtFirstMessage(t *testing.T) {
	own := status.Error(codes.DataLoss, "its own")
	for name, result := range map[string]func(rejection error) error{
		"the error": func(rejection error) error { return rejection },
		"nil":       func(error) error { return nil },
		"its own":   func(error) error { return own },
	} {
		locks := sqllock.NewMemory()
		hold(t, locks, "alice")
		seen := make(chan error, 4)
		stream := openDuplex(t, ratelimit.OneAtATime(locks, namespace), "alice", func(stream duplexServer) error {
			ctx := stream.Context()
			_, rejection := stream.Recv()
			_, again := stream.Recv()
			for _, err := range []error{rejection, context.Cause(ctx), again, stream.Send(&pb.StreamingOutputCallResponse{})} {
				seen <- err
			}
			return result(rejection)
		})
		_, err := stream.Recv()
		if status.Code(err) != codes.ResourceExhausted || len(status.Convert(err).Details()) != 3 {
			t.Errorf("returns %s: the call ended with %v", name, err)
		}
		if got := stream.Trailer()["grpc-retry-pushback-ms"]; len(got) != 1 {
			t.Errorf("returns %s: trailer %v", name, stream.Trailer())
		}
		for _, what := range []string{"Recv", "the context's cause", "Recv again", "Send"} {
			if err := httptesting.Receive(t, seen, what); status.Code(err) != codes.ResourceExhausted {
				t.Errorf("returns %s, %s: %v", name, what, err)
			}
		}
	}
}

// A handler may return while another of its goroutines receives the first
// message. No lock stays behind: the key is free when the client has its
// response.
func TestHandlerReturnsDuringAdmission(t *testing.T) {
	locks := slowLocker{Memory: sqllock.NewMemory(), asked: make(chan struct{}), answer: make(chan struct{})}
	received := make(chan error, 1)
	stream := openDuplex(t, ratelimit.OneAtATime(locks, namespace), "alice", func(stream duplexServer) error {
		go func() {
			_, err := stream.Recv()
			received <- err
		}()
		<-locks.asked
		go func() {
			<-stream.Context().Done() // the handler has returned
			close(locks.answer)       // and yet the lock is granted
		}()
		return nil
	})
	if err := drain(stream); err != nil {
		t.Error(err)
	}
	if !isFree(locks.Memory, "alice") {
		t.Error("the call has ended and its key is not free")
	}
	if err := httptesting.Receive(t, received, "Recv"); status.Code(err) != codes.Canceled {
		t.Errorf("Recv after the handler has returned: %v", err)
	}
}

// slowLocker grants its first lock when the test says so, even if the context
// of the call has ended.
type slowLocker struct {
	*sqllock.Memory
	asked, answer chan struct{}
}

func (l slowLocker) TryLock(ctx context.Context, key sqllock.Key) (*sqllock.Lock, error) {
	close(l.asked)
	<-l.answer
	return l.Memory.TryLock(context.WithoutCancel(ctx), key)
}

// That also holds for a message that the transport still has.
func TestMessageAfterReturn(t *testing.T) {
	locks := sqllock.NewMemory()
	intercept := grpcmw.StreamServerInterceptor(ratelimit.OneAtATime(locks, namespace), grpcmw.Field("response_status.message"))
	var kept grpc.ServerStream
	err := intercept(nil, oneMessage{"alice"}, streamInfo, func(_ any, stream grpc.ServerStream) error {
		kept = stream
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if err := kept.RecvMsg(&pb.StreamingOutputCallRequest{}); status.Code(err) != codes.Canceled || !isFree(locks, "alice") {
		t.Errorf("after the handler has returned: %v, and a lock", err)
	}
}

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
			var log httptesting.Logbook
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
			err := grpcmw.StreamStackInterceptor(levels, grpcmw.WithLogger(log.Logger()))(nil, oneMessage{"alice"}, streamInfo, func(_ any, stream grpc.ServerStream) error {
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
