package connectmw_test

import (
	"context"
	"errors"
	"net/http"
	"testing"

	"connectrpc.com/connect"

	"github.com/latchkey-go/latchkey/grpcmw/connectmw"
	"github.com/latchkey-go/latchkey/internal/httptesting"
	"github.com/latchkey-go/latchkey/internal/lockertest"
	"github.com/latchkey-go/latchkey/ratelimit"
	"github.com/latchkey-go/latchkey/sqllock"
)

// While a call of a key is served, a second one is rejected, and one of another
// key is not. The handler's context carries the lock.
func TestCallsAtOnce(t *testing.T) {
	each(t, func(t *testing.T, road int, call call, key connectmw.KeyFunc) {
		locks := sqllock.NewMemory()
		entered, leave := make(chan context.Context), make(chan struct{})
		w := func(ctx context.Context) error {
			entered <- ctx
			<-leave
			return ctx.Err()
		}
		c := dial(t, handlers(w, limited(ratelimit.OneAtATime(locks, namespace), key)), road)
		first := make(chan error, 1)
		go func() { first <- call(t.Context(), c, alice) }()
		ctx := httptesting.Receive(t, entered, "the first call")

		lock, ok := sqllock.FromContext(ctx)
		if !ok || lock.Err() != nil || lock.Key() != namespace.Key(alice) {
			t.Errorf("the handler's context carries lock %v, %v", lock, ok)
		}
		if err := call(t.Context(), c, alice); connect.CodeOf(err) != connect.CodeResourceExhausted {
			t.Errorf("a second call for the key: %v", err)
		}
		second := make(chan error, 1)
		go func() { second <- call(t.Context(), c, "bob") }()
		httptesting.Receive(t, entered, "a call for another key")

		close(leave)
		for _, c := range []chan error{first, second} {
			if err := httptesting.Receive(t, c, "the calls to end"); err != nil {
				t.Error(err)
			}
		}
		if !errors.Is(lock.Err(), sqllock.ErrReleased) || ctx.Err() == nil {
			t.Errorf("after the call: lock %v, context %v", lock.Err(), ctx.Err())
		}
	})
}

// A client that calls again as soon as it has its response is never rejected,
// by any server.
func TestSequentialCallsAreNeverRejected(t *testing.T) {
	for _, fleet := range lockertest.Instances {
		t.Run(fleet.Name, func(t *testing.T) {
			a, b := fleet.New(t)
			for i, road := range roads {
				for _, kind := range kinds {
					if kind.name == "bidi" && !road.http2 {
						continue
					}
					var servers []clients
					for _, locks := range []sqllock.Locker{a, b} {
						servers = append(servers, dial(t, handlers(nothing, limited(ratelimit.OneAtATime(locks, namespace), connectmw.Field("value"))), i))
					}
					for n := range 10 {
						if err := kind.call(t.Context(), servers[n%2], alice); err != nil {
							t.Fatalf("%s, %s, call %d: %v", road.name, kind.name, n, err)
						}
					}
				}
			}
		})
	}
}

// A panic releases the lock, and goes on to an interceptor that recovers it.
func TestPanicReleases(t *testing.T) {
	each(t, func(t *testing.T, road int, call call, key connectmw.KeyFunc) {
		recovered := make(chan any, 1)
		seen := connect.WithRecover(func(_ context.Context, _ connect.Spec, _ http.Header, p any) error {
			recovered <- p
			return connect.NewError(connect.CodeDataLoss, errors.New("a panic"))
		})
		w := func(context.Context) error { panic("the work fails") }
		c := dial(t, handlers(w, seen, limited(ratelimit.OneAtATime(sqllock.NewMemory(), namespace), key)), road)
		for range 2 { // the second is not rejected
			if err := call(t.Context(), c, alice); connect.CodeOf(err) != connect.CodeDataLoss {
				t.Errorf("a call that panics: %v", err)
			}
			if p := httptesting.Receive(t, recovered, "the panic"); p != "the work fails" {
				t.Errorf("recovered %v", p)
			}
		}
	})
}

// A client may have the interceptor among its own. It limits nothing there.
func TestClientIsNotLimited(t *testing.T) {
	none := func(context.Context, connectmw.Call) (string, error) { return "", errors.New("the KeyFunc was called") }
	i := connect.WithInterceptors(connectmw.New(ratelimit.OneAtATime(sqllock.NewMemory(), namespace), none))
	url, client := serve(t, handlers(nothing), true)
	to := func(name string) *connect.Client[message, message] {
		return connect.NewClient[message, message](client, url+service+name, i)
	}
	c := clients{to("Unary"), to("Client"), to("Server"), to("Bidi")}
	for _, kind := range kinds {
		if err := kind.call(t.Context(), c, alice); err != nil {
			t.Errorf("%s: %v", kind.name, err)
		}
	}
}
