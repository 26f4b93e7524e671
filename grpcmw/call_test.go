package grpcmw_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/grpc-ecosystem/go-grpc-middleware/v2/interceptors/recovery"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	pb "google.golang.org/grpc/interop/grpc_testing"
	"google.golang.org/grpc/status"

	"github.com/latchkey-go/latchkey/internal/httptesting"
	"github.com/latchkey-go/latchkey/internal/lockertest"
	"github.com/latchkey-go/latchkey/ratelimit"
	"github.com/latchkey-go/latchkey/sqllock"
)

// A client that calls again as soon as it has its response is never rejected,
// by any server.
func TestSequentialCallsAreNeverRefused(t *testing.T) {
	const calls = 30
	for _, fleet := range lockertest.Instances {
		t.Run(fleet.Name, func(t *testing.T) {
			t.Parallel()
			a, b := fleet.New(t)
			for _, r := range roads {
				var clients []pb.TestServiceClient
				for _, locks := range []sqllock.Locker{a, b} {
					levels := r.over(ratelimit.OneAtATime(locks, namespace))
					clients = append(clients, start(t, &service{work: nothing}, limited(levels)...))
				}
				for n := range calls {
					if err := r.call(t.Context(), clients[n%2], "alice"); err != nil {
						t.Fatalf("%s, call %d: %v", r.name, n, err)
					}
				}
			}
		})
	}
}

// While a call of a key is served, a second one is rejected, and one of another
// key is not. The handler's context carries the lock, and ends before it.
func TestCallsAtOnce(t *testing.T) {
	each(t, func(t *testing.T, r road) {
		locks := sqllock.NewMemory()
		entered, leave := make(chan context.Context), make(chan struct{})
		s := &service{work: func(ctx context.Context) error {
			entered <- ctx
			<-leave
			return ctx.Err()
		}}
		client := start(t, s, limited(r.over(ratelimit.OneAtATime(locks, namespace)))...)
		first := make(chan error, 1)
		go func() { first <- r.call(t.Context(), client, "alice") }()
		ctx := httptesting.Receive(t, entered, "the first call")

		lock, ok := sqllock.FromContext(ctx, namespace.Key("alice"))
		if !ok || lock.Err() != nil || lock.Key() != namespace.Key("alice") {
			t.Errorf("the handler's context carries lock %v, %v", lock, ok)
		}
		if err := r.call(t.Context(), client, "alice"); status.Code(err) != codes.ResourceExhausted {
			t.Errorf("a second call for the key: %v", err)
		}
		second := make(chan error, 1)
		go func() { second <- r.call(t.Context(), client, "bob") }()
		httptesting.Receive(t, entered, "a call for another key")

		stopped := make(chan bool, 1)
		lock.OnEnd(func(error) { stopped <- ctx.Err() != nil })
		close(leave)
		for _, c := range []chan error{first, second} {
			if err := httptesting.Receive(t, c, "the calls to end"); err != nil {
				t.Error(err)
			}
		}
		if !errors.Is(lock.Err(), sqllock.ErrReleased) || !isFree(locks, "alice") {
			t.Errorf("after the call: lock %v", lock.Err())
		}
		if !httptesting.Receive(t, stopped, "the release") {
			t.Error("what the handler has left behind goes on while the key is free")
		}
	})
}

// A panic releases the lock, and goes on to an interceptor that recovers it.
func TestPanicReleases(t *testing.T) {
	each(t, func(t *testing.T, r road) {
		s := &service{work: func(context.Context) error { panic("the work fails") }}
		recovered := make(chan any, 1)
		seen := recovery.WithRecoveryHandler(func(p any) error {
			recovered <- p
			return status.Error(codes.DataLoss, "panic")
		})
		opts := append([]grpc.ServerOption{
			grpc.ChainUnaryInterceptor(recovery.UnaryServerInterceptor(seen)),
			grpc.ChainStreamInterceptor(recovery.StreamServerInterceptor(seen)),
		}, limited(r.over(ratelimit.OneAtATime(sqllock.NewMemory(), namespace)))...)
		client := start(t, s, opts...)
		for range 2 { // the second is not refused
			if err := r.call(t.Context(), client, "alice"); status.Code(err) != codes.DataLoss {
				t.Errorf("a call that panics: %v", err)
			}
			if p := httptesting.Receive(t, recovered, "the panic"); p != "the work fails" {
				t.Errorf("recovered %v", p)
			}
		}
	})
}

func TestClientCancels(t *testing.T) {
	each(t, func(t *testing.T, r road) {
		locks := sqllock.NewMemory()
		entered, cause := make(chan struct{}), make(chan error, 1)
		s := &service{work: func(ctx context.Context) error {
			close(entered)
			<-ctx.Done()
			cause <- context.Cause(ctx)
			return ctx.Err()
		}}
		client := start(t, s, limited(r.over(ratelimit.OneAtATime(locks, namespace)))...)
		ctx, cancel := context.WithCancel(t.Context())
		call := make(chan error, 1)
		go func() { call <- r.call(ctx, client, "alice") }()
		httptesting.Receive(t, entered, "the handler")
		cancel()
		if err := httptesting.Receive(t, call, "the call's end"); status.Code(err) != codes.Canceled {
			t.Errorf("the call ended with %v", err)
		}
		if err := httptesting.Receive(t, cause, "the handler's context to end"); !errors.Is(err, context.Canceled) {
			t.Errorf("cause %v", err)
		}
		lockertest.Eventually(t, "the lock is given back", func() bool { return isFree(locks, "alice") })
	})
}

// A server that stops gracefully serves the calls that have begun, also those
// that wait for their turn.
func TestGracefulStop(t *testing.T) {
	each(t, func(t *testing.T, r road) {
		locks := sqllock.NewMemory()
		release := hold(t, locks, "alice")
		l := ratelimit.OneAtATime(locks, namespace, ratelimit.WithWait(httptesting.Patience, 10))
		server, address := serve(t, &service{work: nothing}, limited(r.over(l))...)
		client := dial(t, address)
		waiting, stopped := make(chan error, 1), make(chan struct{})
		go func() { waiting <- r.call(t.Context(), client, "alice") }()
		lockertest.Eventually(t, "the call waits", func() bool { return l.Stats().Queued == 1 })
		go func() {
			defer close(stopped)
			server.GracefulStop()
		}()
		lockertest.Eventually(t, "the server accepts no more calls", func() bool {
			return r.call(t.Context(), client, "bob") != nil
		})
		release()
		if err := httptesting.Receive(t, waiting, "the call's end"); err != nil {
			t.Errorf("the call that waited: %v", err)
		}
		httptesting.Receive(t, stopped, "the server's end")
	})
}

// If the call's context ends the wait for the key, the status is that of the
// context.
func TestEndInTheWait(t *testing.T) {
	for kind, call := range calls {
		for _, want := range []error{context.Canceled, context.DeadlineExceeded} {
			t.Run(kind+"/"+want.Error(), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					locks := sqllock.NewMemory()
					hold(t, locks, "alice")
					ctx, cancel := context.WithTimeout(t.Context(), time.Second)
					defer cancel()
					if want == context.Canceled {
						time.AfterFunc(time.Second/2, cancel)
					}
					l := ratelimit.OneAtATime(locks, namespace, ratelimit.WithWait(time.Minute, 10))
					got := status.Convert(call(ctx, one(l, constant("alice")), nothing))
					if s := status.FromContextError(want); got.Code() != s.Code() || got.Message() != s.Message() {
						t.Errorf("the call ended with %v, want %v", got, s)
					}
				})
			})
		}
	}
}
