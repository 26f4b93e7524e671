package grpcmw_test

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"testing"
	"testing/synctest"
	"time"

	"github.com/grpc-ecosystem/go-grpc-middleware/v2/interceptors/recovery"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	pb "google.golang.org/grpc/interop/grpc_testing"
	"google.golang.org/grpc/status"

	"github.com/latchkey-go/latchkey/grpcmw"
	"github.com/latchkey-go/latchkey/internal/httptesting"
	"github.com/latchkey-go/latchkey/internal/lockertest"
	"github.com/latchkey-go/latchkey/ratelimit"
	"github.com/latchkey-go/latchkey/sqllock"
)

// each runs f for each kind of call with each source of its key.
func each(t *testing.T, f func(t *testing.T, kind int, key grpcmw.KeyFunc)) {
	for _, source := range sources {
		for i, kind := range kinds {
			t.Run(source.name+"/"+kind.name, func(t *testing.T) {
				t.Parallel()
				f(t, i, source.key)
			})
		}
	}
}

// eachStack runs f for each kind of call with a single limit, and with three
// levels. Each kind meets both sources of its key.
func eachStack(t *testing.T, f func(t *testing.T, kind int, s stack)) {
	for i, kind := range kinds {
		for j, levels := range []int{1, 3} {
			source := sources[(i+j)%len(sources)]
			t.Run(fmt.Sprintf("%s/%d levels/%s", kind.name, levels, source.name), func(t *testing.T) {
				t.Parallel()
				f(t, i, stack{levels, source.key})
			})
		}
	}
}

// A client that calls again as soon as it has its response is never rejected,
// by any server.
func TestSequentialCallsAreNeverRefused(t *testing.T) {
	const calls = 30
	for _, fleet := range lockertest.Instances {
		t.Run(fleet.Name, func(t *testing.T) {
			t.Parallel()
			a, b := fleet.New(t)
			for i, kind := range kinds {
				s := stack{1 + 2*(i%2), sources[i%2].key}
				var clients []pb.TestServiceClient
				for _, locks := range []sqllock.Locker{a, b} {
					clients = append(clients, start(t, &service{work: nothing}, s.limited(locks)...))
				}
				for n := range calls {
					if err := kind.call(t.Context(), clients[n%2], "alice"); err != nil {
						t.Fatalf("%s, call %d: %v", kind.name, n, err)
					}
				}
			}
		})
	}
}

// While a call of a key is served, a second one is rejected, and one of another
// key is not. The handler's context carries the lock, and ends before it.
func TestCallsAtOnce(t *testing.T) {
	eachStack(t, func(t *testing.T, kind int, levels stack) {
		locks := sqllock.NewMemory()
		entered, leave := make(chan context.Context), make(chan struct{})
		s := &service{work: func(ctx context.Context) error {
			entered <- ctx
			<-leave
			return ctx.Err()
		}}
		client := start(t, s, levels.limited(locks)...)
		first := make(chan error, 1)
		go func() { first <- kinds[kind].call(t.Context(), client, "alice") }()
		ctx := httptesting.Receive(t, entered, "the first call")

		lock, ok := sqllock.FromContext(ctx, namespace.Key("alice"))
		if !ok || lock.Err() != nil || lock.Key() != namespace.Key("alice") {
			t.Errorf("the handler's context carries lock %v, %v", lock, ok)
		}
		if err := kinds[kind].call(t.Context(), client, "alice"); status.Code(err) != codes.ResourceExhausted {
			t.Errorf("a second call for the key: %v", err)
		}
		second := make(chan error, 1)
		go func() { second <- kinds[kind].call(t.Context(), client, "bob") }()
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
	eachStack(t, func(t *testing.T, kind int, levels stack) {
		locks := sqllock.NewMemory()
		s := &service{work: func(context.Context) error { panic("the work fails") }}
		recovered := make(chan any, 1)
		seen := recovery.WithRecoveryHandler(func(p any) error {
			recovered <- p
			return status.Error(codes.Internal, "panic")
		})
		opts := append([]grpc.ServerOption{
			grpc.ChainUnaryInterceptor(recovery.UnaryServerInterceptor(seen)),
			grpc.ChainStreamInterceptor(recovery.StreamServerInterceptor(seen)),
		}, levels.limited(locks)...)
		client := start(t, s, opts...)
		for range 2 { // the second is not refused
			if err := kinds[kind].call(t.Context(), client, "alice"); status.Code(err) != codes.Internal {
				t.Errorf("a call that panics: %v", err)
			}
			if p := httptesting.Receive(t, recovered, "the panic"); p != "the work fails" {
				t.Errorf("recovered %v", p)
			}
		}
	})
}

// However the handler ends, and whenever it releases its lock, the key is free
// after the call, and every place is.
func TestHandlerEnds(t *testing.T) {
	for kind, call := range calls {
		for name, tt := range map[string]struct {
			work handler
			ends bool // the call returns
		}{
			"Goexit": {func(context.Context) error { runtime.Goexit(); return nil }, false},
			"early Unlock": {func(ctx context.Context) error {
				lock, _ := sqllock.FromContext(ctx)
				return errors.Join(lock.Unlock(), ctx.Err())
			}, true},
		} {
			for _, levels := range [][]grpcmw.Level{levelsWith(sqllock.NewMemory(), -1), levelsWith(sqllock.NewMemory(), -1)[:1]} {
				ended, result := make(chan struct{}), errors.New("did not return")
				go func() {
					defer close(ended)
					result = call(t.Context(), levels, tt.work)
				}()
				httptesting.Receive(t, ended, "the goroutine's end")
				if (result == nil) != tt.ends {
					t.Errorf("%s, %s: %v", kind, name, result)
				}
				wantPlacesFree(t, levels)
			}
		}
	}
}

func TestClientCancels(t *testing.T) {
	eachStack(t, func(t *testing.T, kind int, levels stack) {
		locks := sqllock.NewMemory()
		entered, cause := make(chan struct{}), make(chan error, 1)
		s := &service{work: func(ctx context.Context) error {
			close(entered)
			<-ctx.Done()
			cause <- context.Cause(ctx)
			return ctx.Err()
		}}
		client := start(t, s, levels.limited(locks)...)
		ctx, cancel := context.WithCancel(t.Context())
		call := make(chan error, 1)
		go func() { call <- kinds[kind].call(ctx, client, "alice") }()
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
