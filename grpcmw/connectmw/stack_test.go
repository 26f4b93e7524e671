package connectmw_test

import (
	"context"
	"testing"

	"connectrpc.com/connect"

	"github.com/latchkey-go/latchkey/grpcmw/connectmw"
	"github.com/latchkey-go/latchkey/internal/httptesting"
	"github.com/latchkey-go/latchkey/ratelimit"
	"github.com/latchkey-go/latchkey/sqllock"
)

func all(context.Context, connectmw.Call) (string, error) { return "all", nil }

// A call gets a place on each level or none, and the error names the level that
// is full. A level that a call bypasses does not limit it. Tests of package
// grpcmw show more of what both packages share.
func TestStack(t *testing.T) {
	each(t, func(t *testing.T, road int, call call, key connectmw.KeyFunc) {
		locks := sqllock.NewMemory()
		total := ratelimit.OneAtATime(locks, "total")
		w := func(ctx context.Context) error {
			if !sqllock.Held(ctx, sqllock.Namespace("user").Key(alice)) || !sqllock.Held(ctx, sqllock.Namespace("total").Key("all")) {
				t.Error("a lock is missing")
			}
			return nil
		}
		stack := connectmw.NewStack([]connectmw.Level{
			{ratelimit.OneAtATime(httptesting.Failing{Err: sqllock.ErrHeld}, "bypassed"), fails(connectmw.ErrBypass)},
			{ratelimit.OneAtATime(locks, "user"), key},
			{total, all},
		})
		c := dial(t, handlers(w, connect.WithInterceptors(stack)), road)
		if err := call(t.Context(), c, alice); err != nil {
			t.Error(err)
		}
		lock, err := total.Acquire(t.Context(), "all")
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = lock.Unlock() }()
		err = call(t.Context(), c, alice)
		if d, _ := read(t, err); connect.CodeOf(err) != connect.CodeResourceExhausted || d.namespace != "total" || d.quota != "total" {
			t.Errorf("with the total full: %v with %+v", err, d)
		}
	})
}

func TestPanics(t *testing.T) {
	l, key := ratelimit.OneAtATime(sqllock.NewMemory(), namespace), connectmw.Header("User")
	for name, f := range map[string]func(){
		"no limiter":       func() { connectmw.New(nil, key) },
		"no KeyFunc":       func() { connectmw.New(l, nil) },
		"no levels":        func() { connectmw.NewStack(nil) },
		"FromContext(nil)": func() { connectmw.FromContext(nil) },
		"no header":        func() { connectmw.Header("") },
		"no field":         func() { connectmw.Field("") },
		"no parts":         func() { connectmw.Join() },
		"a nil part":       func() { connectmw.Join(key, nil) },
		"no domain":        func() { connectmw.WithErrorDomain("") },
		"no text":          func() { connectmw.WithBusyText("") },
		"no log":           func() { connectmw.WithLogger(nil) },
	} {
		t.Run(name, func(t *testing.T) { httptesting.WantPanic(t, "connectmw", "", f) })
	}
}

// Health checks are not limited, unless asked for.
func TestExempt(t *testing.T) {
	const procedure = "/grpc.health.v1.Health/Watch"
	for _, opts := range [][]connectmw.Option{nil, {connectmw.WithAllServices()}} {
		limit := limited(ratelimit.OneAtATime(httptesting.Failing{Err: sqllock.ErrHeld}, namespace), connectmw.Header("User"), opts...)
		url, client := serve(t, connect.NewServerStreamHandler(procedure, func(context.Context, *connect.Request[message], *connect.ServerStream[message]) error {
			return nil
		}, limit), true)
		c := clients{server: connect.NewClient[message, message](client, url+procedure)}
		if err := kinds[2].call(t.Context(), c, alice); (connect.CodeOf(err) == connect.CodeResourceExhausted) != (opts != nil) {
			t.Errorf("%v with %d options", err, len(opts))
		}
	}
}
