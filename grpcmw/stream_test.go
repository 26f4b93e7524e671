package grpcmw_test

import (
	"context"
	"errors"
	"io"
	"testing"

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

type duplexServer = pb.TestService_FullDuplexCallServer

// openDuplex opens a bidi stream to a server with handler, and sends its first
// message if key is not empty.
func openDuplex(t *testing.T, limit *ratelimit.Limiter, key string, handler func(duplexServer) error) pb.TestService_FullDuplexCallClient {
	t.Helper()
	client := start(t, &service{duplex: handler}, limited(limit, grpcmw.Field("response_status.message"), grpcmw.WithPushback(1))...)
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

// A hooked context calls hook while a context made from it ends, before any
// other goroutine can notice that.
type hooked struct {
	context.Context
	done chan struct{}
	hook *func()
}

func (c hooked) Done() <-chan struct{} { return c.done }

// AfterFunc is for package context, which stops what it asks for here.
func (c hooked) AfterFunc(func()) (stop func() bool) {
	return func() bool { (*c.hook)(); return true }
}

// A goroutine that sees the context of a rejected stream end finds the
// rejection: the stream is no longer undecided.
func TestRejectionBeforeContextEnds(t *testing.T) {
	locks := sqllock.NewMemory()
	hold(t, locks, "alice")
	ctx := hooked{t.Context(), make(chan struct{}), new(func())}
	*ctx.hook = func() {}
	intercept := grpcmw.StreamServerInterceptor(ratelimit.OneAtATime(locks, namespace), grpcmw.Field("response_status.message"))
	var seen error
	_ = intercept(nil, streamOf{oneMessage{"alice"}, ctx}, streamInfo, func(_ any, stream grpc.ServerStream) error {
		*ctx.hook = func() { seen = stream.SendMsg(nil) }
		return stream.RecvMsg(&pb.StreamingOutputCallRequest{})
	})
	if status.Code(seen) != codes.ResourceExhausted {
		t.Errorf("SendMsg while the context ends: %v, want the rejection", seen)
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

// Messages go both ways at once, in a goroutine each.
func TestMessagesBothWays(t *testing.T) {
	const messages = 100
	stream := openDuplex(t, ratelimit.OneAtATime(sqllock.NewMemory(), namespace), "alice", func(stream duplexServer) error {
		sent := make(chan error, 1)
		go func() {
			for n := 0; n < messages; n++ {
				err := stream.Send(&pb.StreamingOutputCallResponse{})
				if status.Code(err) == codes.FailedPrecondition {
					n-- // the other goroutine has not received the first message yet
				} else if err != nil {
					sent <- err
					return
				}
			}
			sent <- nil
		}()
		for {
			if _, err := stream.Recv(); err != nil {
				return errors.Join(<-sent, ignoreEOF(err))
			}
		}
	})
	for range messages {
		if err := stream.Send(&pb.StreamingOutputCallRequest{}); err != nil {
			t.Fatal(err)
		}
	}
	_ = stream.CloseSend()
	for n := range messages + 1 {
		if _, err := stream.Recv(); (err == io.EOF) != (n == messages) {
			t.Fatalf("message %d: %v", n, err)
		}
	}
}

func ignoreEOF(err error) error {
	if err == io.EOF {
		return nil
	}
	return err
}
