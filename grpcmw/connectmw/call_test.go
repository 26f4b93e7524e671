package connectmw_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"connectrpc.com/connect"

	"github.com/latchkey-go/latchkey/grpcmw/connectmw"
	"github.com/latchkey-go/latchkey/internal/httptesting"
	"github.com/latchkey-go/latchkey/internal/lockertest"
	"github.com/latchkey-go/latchkey/ratelimit"
	"github.com/latchkey-go/latchkey/sqllock"
)

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

// A client that leaves ends its wait. Over HTTP/1.1 streams are not here, nor is
// gRPC-Web: the server notices nothing before it has read the whole request.
// With the key in the first message it mostly has, and with one in a header it
// mostly has not.
func TestClientLeavesTheWait(t *testing.T) {
	each(t, func(t *testing.T, road int, call call, key connectmw.KeyFunc) {
		if !roads[road].http2 && (!strings.Contains(t.Name(), "/unary/") || strings.Contains(roads[road].name, "gRPC-Web")) {
			return // net/http reads no further by itself
		}
		decided := make(chan ratelimit.Event, 8) // more than there are: an Observer that blocks keeps the server from its end
		l := ratelimit.OneAtATime(sqllock.NewMemory(), namespace, ratelimit.WithWait(time.Hour, 1),
			ratelimit.WithObserver(func(_ context.Context, e ratelimit.Event) { decided <- e }))
		lock, err := l.Acquire(t.Context(), alice)
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = lock.Unlock() }()
		httptesting.Receive(t, decided, "the first decision")
		c := dial(t, handlers(nothing, limited(l, key)), road)
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		ended := make(chan error, 1)
		go func() { ended <- call(ctx, c, alice) }()
		lockertest.Eventually(t, "the wait", func() bool { return l.Stats().Queued == 1 })
		cancel()
		httptesting.Receive(t, ended, "the client's end")
		if e := httptesting.Receive(t, decided, "the end of the wait"); !errors.Is(e.Err, context.Canceled) {
			t.Errorf("the wait ended with %v", e.Err)
		}
	})
}
