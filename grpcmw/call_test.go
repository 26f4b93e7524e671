package grpcmw_test

import (
	"context"
	"errors"
	"runtime"
	"sync/atomic"
	"testing"
	"time"

	"github.com/grpc-ecosystem/go-grpc-middleware/v2/interceptors/recovery"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	pb "google.golang.org/grpc/interop/grpc_testing"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/latchkey-go/latchkey/grpcmw"
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

// eachStack is each with a single limit, and with three levels.
func eachStack(t *testing.T, f func(t *testing.T, kind int, s stack)) {
	for name, levels := range map[string]int{"one limit": 1, "three levels": 3} {
		t.Run(name, func(t *testing.T) {
			each(t, func(t *testing.T, kind int, key grpcmw.KeyFunc) { f(t, kind, stack{levels, key}) })
		})
	}
}

// A client that calls again as soon as it has its response is never rejected,
// by any server.
func TestSequentialCallsAreNeverRefused(t *testing.T) {
	const calls = 200
	eachStack(t, func(t *testing.T, kind int, levels stack) {
		for _, fleet := range lockertest.Instances {
			t.Run(fleet.Name, func(t *testing.T) {
				a, b := fleet.New(t)
				s := &service{work: func(context.Context) error { return nil }}
				var clients []pb.TestServiceClient
				for _, locks := range []sqllock.Locker{a, b} {
					clients = append(clients, start(t, s, levels.limited(locks)...))
				}
				for i := range calls {
					if err := kinds[kind].call(t.Context(), clients[i%2], "alice"); err != nil {
						t.Fatalf("call %d: %v", i, err)
					}
				}
			})
		}
	})
}

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
		ctx := wait(t, entered, "the first call")

		lock, ok := sqllock.FromContext(ctx, namespace.Key("alice"))
		if !ok || lock.Err() != nil || lock.Key() != namespace.Key("alice") {
			t.Errorf("the handler's context carries lock %v, %v", lock, ok)
		}
		if err := kinds[kind].call(t.Context(), client, "alice"); status.Code(err) != codes.ResourceExhausted {
			t.Errorf("a second call for the key: %v", err)
		}
		second := make(chan error, 1)
		go func() { second <- kinds[kind].call(t.Context(), client, "bob") }()
		wait(t, entered, "a call for another key")

		close(leave)
		for _, c := range []chan error{first, second} {
			if err := wait(t, c, "the calls to end"); err != nil {
				t.Error(err)
			}
		}
		if !errors.Is(lock.Err(), sqllock.ErrReleased) || ctx.Err() == nil || !isFree(locks, "alice") {
			t.Errorf("after the call: lock %v, context %v", lock.Err(), ctx.Err())
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
			if p := wait(t, recovered, "the panic"); p != "the work fails" {
				t.Errorf("recovered %v", p)
			}
		}
	})
}

func TestGoexitReleases(t *testing.T) {
	locks := sqllock.NewMemory()
	intercept := grpcmw.UnaryServerInterceptor(ratelimit.OneAtATime(locks, namespace), grpcmw.Metadata("user"))
	ctx := metadata.NewIncomingContext(t.Context(), metadata.Pairs("user", "alice"))
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		_, _ = intercept(ctx, nil, &grpc.UnaryServerInfo{}, func(context.Context, any) (any, error) {
			runtime.Goexit()
			return nil, nil
		})
	}()
	wait(t, ended, "the goroutine's end")
	if !isFree(locks, "alice") {
		t.Error("the lock was not given back")
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
		wait(t, entered, "the handler")
		cancel()
		if err := wait(t, call, "the call's end"); status.Code(err) != codes.Canceled {
			t.Errorf("the call ended with %v", err)
		}
		if err := wait(t, cause, "the handler's context to end"); !errors.Is(err, context.Canceled) {
			t.Errorf("cause %v", err)
		}
		eventually(t, "the lock to be given back", func() bool { return isFree(locks, "alice") })
	})
}

func TestGracefulStop(t *testing.T) {
	eachStack(t, func(t *testing.T, kind int, levels stack) {
		locks := sqllock.NewMemory()
		entered, leave := make(chan struct{}), make(chan struct{})
		s := &service{work: func(ctx context.Context) error {
			close(entered)
			<-leave
			return ctx.Err()
		}}
		server, address := serve(t, s, levels.limited(locks)...)
		client := dial(t, address)
		call := make(chan error, 1)
		go func() { call <- kinds[kind].call(t.Context(), client, "alice") }()
		wait(t, entered, "the handler")
		stopped := make(chan struct{})
		go func() { server.GracefulStop(); close(stopped) }()
		if isFree(locks, "alice") {
			t.Error("the key is free while its call runs")
		}
		close(leave)
		if err := wait(t, call, "the call's end"); err != nil {
			t.Error(err)
		}
		wait(t, stopped, "the server's end")
		if !isFree(locks, "alice") {
			t.Error("the server has stopped and the key is not free")
		}
	})
}

// If the client's deadline ends the wait for the key, the status is
// DEADLINE_EXCEEDED.
func TestDeadlineWhileWaiting(t *testing.T) {
	eachStack(t, func(t *testing.T, kind int, levels stack) {
		locks := sqllock.NewMemory()
		hold(t, locks, "alice")
		answer := make(chan error, 10) // the server's, as the client's own clock answers the same
		var arrived atomic.Bool
		opts := append([]grpc.ServerOption{
			grpc.ChainUnaryInterceptor(func(ctx context.Context, req any, _ *grpc.UnaryServerInfo, next grpc.UnaryHandler) (any, error) {
				arrived.Store(true)
				resp, err := next(ctx, req)
				answer <- err
				return resp, err
			}),
			grpc.ChainStreamInterceptor(func(srv any, ss grpc.ServerStream, _ *grpc.StreamServerInfo, next grpc.StreamHandler) error {
				arrived.Store(true)
				err := next(srv, ss)
				answer <- err
				return err
			}),
		}, levels.limited(locks, ratelimit.WithWait(time.Minute, 10))...)
		client := start(t, &service{}, opts...)
		// A slow machine may not have a connection in time.
		for timeout := 100 * time.Millisecond; !arrived.Load(); timeout *= 2 {
			ctx, cancel := context.WithTimeout(t.Context(), timeout)
			if err := kinds[kind].call(ctx, client, "alice"); status.Code(err) != codes.DeadlineExceeded {
				t.Errorf("the client got %v", err)
			}
			cancel()
		}
		// The deadline's end may reach the server as the client's cancellation.
		err := wait(t, answer, "the server's answer")
		if code := status.Code(err); code != codes.DeadlineExceeded && code != codes.Canceled {
			t.Errorf("the server answered %v", err)
		}
		if text := status.Convert(err).Message(); text != context.DeadlineExceeded.Error() && text != context.Canceled.Error() {
			t.Errorf("the server answered %q", text)
		}
	})
}

// A call that waits is admitted when its key becomes free.
func TestWaits(t *testing.T) {
	eachStack(t, func(t *testing.T, kind int, levels stack) {
		locks := sqllock.NewMemory()
		release := hold(t, locks, "alice")
		s := &service{work: func(context.Context) error { return nil }}
		if err := kinds[kind].call(t.Context(), start(t, s, levels.limited(waitingLocker{locks, release}, ratelimit.WithWait(time.Minute, 10))...), "alice"); err != nil {
			t.Error(err)
		}
	})
}

// waitingLocker calls release once a call waits.
type waitingLocker struct {
	*sqllock.Memory
	release func()
}

func (l waitingLocker) Lock(ctx context.Context, key sqllock.Key) (*sqllock.Lock, error) {
	time.AfterFunc(time.Millisecond, l.release)
	return l.Memory.Lock(ctx, key)
}

func (l waitingLocker) LockAny(ctx context.Context, keys ...sqllock.Key) (*sqllock.Lock, error) {
	time.AfterFunc(time.Millisecond, l.release)
	return l.Memory.LockAny(ctx, keys...)
}

// A key that is not UTF-8 travels in binary metadata only.
func TestKeyNotUTF8(t *testing.T) {
	limit := ratelimit.OneAtATime(sqllock.NewMemory(), namespace)
	client := start(t, &service{}, limited(limit, grpcmw.Metadata("user-bin"))...)
	_, err := client.UnaryCall(as(t.Context(), "alice\xff"), &pb.SimpleRequest{})
	if status.Code(err) != codes.InvalidArgument {
		t.Error(err)
	}
}

// Goroutines that the handler has left behind see their context end before the
// lock is released.
func TestContextEndsBeforeRelease(t *testing.T) {
	eachStack(t, func(t *testing.T, kind int, levels stack) {
		ended := make(chan bool, 1)
		s := &service{work: func(ctx context.Context) error {
			lock, _ := sqllock.FromContext(ctx, namespace.Key("alice"))
			lock.OnEnd(func(error) {
				select {
				case <-ctx.Done():
					ended <- true
				default:
					ended <- false
				}
			})
			return nil
		}}
		client := start(t, s, levels.limited(sqllock.NewMemory())...)
		if err := kinds[kind].call(t.Context(), client, "alice"); err != nil {
			t.Error(err)
		}
		if !wait(t, ended, "the release") {
			t.Error("the handler's context outlives the lock")
		}
	})
}

// The handler may release the lock before it returns.
func TestHandlerUnlocksEarly(t *testing.T) {
	eachStack(t, func(t *testing.T, kind int, levels stack) {
		locks := sqllock.NewMemory()
		s := &service{work: func(ctx context.Context) error {
			lock, _ := sqllock.FromContext(ctx, namespace.Key("alice"))
			err := lock.Unlock()
			if !isFree(locks, "alice") {
				err = errors.New("the key is not free")
			}
			return errors.Join(err, ctx.Err())
		}}
		client := start(t, s, levels.limited(locks)...)
		if err := kinds[kind].call(t.Context(), client, "alice"); err != nil {
			t.Error(err)
		}
	})
}

// Of two interceptors in a chain the handler finds the inner one's lock, and
// both are held.
func TestTwoLimits(t *testing.T) {
	each(t, func(t *testing.T, kind int, key grpcmw.KeyFunc) {
		locks := sqllock.NewMemory()
		s := &service{work: func(ctx context.Context) error {
			lock, _ := sqllock.FromContext(ctx)
			if lock.Key() != sqllock.Namespace("inner").Key("alice") || isFree(locks, "alice") {
				return errors.New("not the inner lock, or the outer one is not held")
			}
			return nil
		}}
		opts := append(limited(ratelimit.OneAtATime(locks, namespace), key),
			limited(ratelimit.OneAtATime(locks, "inner"), key)...)
		if err := kinds[kind].call(t.Context(), start(t, s, opts...), "alice"); err != nil {
			t.Error(err)
		}
	})
}

// WithMaxHold ends the handler's context; the lock stays until it has returned.
func TestMaxHold(t *testing.T) {
	eachStack(t, func(t *testing.T, kind int, levels stack) {
		locks := sqllock.NewMemory()
		s := &service{work: func(ctx context.Context) error {
			<-ctx.Done()
			if !errors.Is(context.Cause(ctx), ratelimit.ErrMaxHold) || isFree(locks, "alice") {
				return context.Cause(ctx)
			}
			return status.Error(codes.OutOfRange, "as expected")
		}}
		policy := ratelimit.WithMaxHold(time.Millisecond)
		err := kinds[kind].call(t.Context(), start(t, s, levels.limited(locks, policy)...), "alice")
		if status.Code(err) != codes.OutOfRange {
			t.Error(err)
		}
	})
}
