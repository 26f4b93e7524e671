package connectmw_test

import (
	"context"
	"strconv"
	"strings"
	"testing"

	"connectrpc.com/connect"

	"github.com/latchkey-go/latchkey/grpcmw/connectmw"
	"github.com/latchkey-go/latchkey/internal/httptesting"
	"github.com/latchkey-go/latchkey/ratelimit"
	"github.com/latchkey-go/latchkey/sqllock"
)

func all(context.Context, connectmw.Call) (string, error) { return "all", nil }

// A call gets a place on each level or none, and the error names the level that
// is full. A level that a call bypasses does not limit it. The end of the lock of
// any level ends the call, which names that level. Of two interceptors, the one
// whose lock ended the context decides.
func TestStack(t *testing.T) {
	each(t, func(t *testing.T, road int, call call, key connectmw.KeyFunc) {
		locks, ending := sqllock.NewMemory(), sqllock.Namespace("")
		total := ratelimit.OneAtATime(locks, "total")
		w := func(ctx context.Context) error {
			if !sqllock.Held(ctx, sqllock.Namespace("user").Key(alice)) {
				t.Error("the lock of the user is missing")
			}
			lock, _ := sqllock.FromContext(ctx, ending.Key("all"))
			lock.Cancel(ratelimit.ErrMaxHold)
			<-ctx.Done()
			return ctx.Err()
		}
		stack := connectmw.NewStack([]connectmw.Level{
			{ratelimit.OneAtATime(httptesting.Failing{Err: sqllock.ErrHeld}, "bypassed"), fails(connectmw.ErrBypass)},
			{ratelimit.OneAtATime(locks, "user"), key},
			{total, all},
		})
		c := dial(t, handlers(w, limited(ratelimit.OneAtATime(locks, "outer"), all), connect.WithInterceptors(stack)), road)
		for _, ending = range []sqllock.Namespace{"outer", "total"} {
			err := call(t.Context(), c, alice)
			if connect.CodeOf(err) != connect.CodeDeadlineExceeded || !strings.Contains(err.Error(), strconv.Quote(string(ending))) {
				t.Errorf("%v, want the end of %s", err, ending)
			}
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

// One id on two levels of one limit is the server's mistake, not the client's. So
// is a limit that is on the road of a call twice: it is in the log.
func TestTwice(t *testing.T) {
	eachKind(t, func(t *testing.T, road int, call call, _ connectmw.KeyFunc) {
		l := ratelimit.AtMost(2, sqllock.NewMemory(), namespace)
		var log httptesting.Logbook
		opt := connectmw.WithLogger(log.Logger())
		stack := connectmw.NewStack([]connectmw.Level{{l, all}, {l, all}}, opt)
		err := call(t.Context(), dial(t, handlers(nothing, connect.WithInterceptors(stack)), road), alice)
		if connect.CodeOf(err) != connect.CodeInternal {
			t.Errorf("two levels: %v, want internal", err)
		}
		log.Want(t, "two levels", 1, "level=ERROR", "two places of one limit", "test")

		if err := call(t.Context(), dial(t, handlers(nothing, limited(l, all), limited(l, all, opt)), road), alice); err != nil {
			t.Errorf("two interceptors: %v", err)
		}
		log.Want(t, "two interceptors", 1, "level=ERROR", "two places of one limit", "limit=2")
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

// The errors of KeyFuncs are those of package ratelimit.
func TestErrorsAreOneValue(t *testing.T) {
	for own, shared := range map[error]error{
		connectmw.ErrNoKey: ratelimit.ErrNoKey, connectmw.ErrBadID: ratelimit.ErrBadID, connectmw.ErrBypass: ratelimit.ErrBypass,
	} {
		if own != shared { //nolint:errorlint // one value
			t.Errorf("%v is not the value of package ratelimit", own)
		}
	}
}

// Health checks are not limited, unless asked for.
func TestExempt(t *testing.T) {
	const procedure = "/grpc.health.v1.Health/Check"
	for _, opts := range [][]connectmw.Option{nil, {connectmw.WithAllServices()}} {
		limit := limited(ratelimit.OneAtATime(httptesting.Failing{Err: sqllock.ErrHeld}, namespace), connectmw.Header("User"), opts...)
		unary := connect.NewUnaryHandler(procedure, func(context.Context, *connect.Request[message]) (*connect.Response[message], error) {
			return connect.NewResponse(new(message)), nil
		}, limit)
		stream := connect.NewServerStreamHandler(procedure, func(context.Context, *connect.Request[message], *connect.ServerStream[message]) error {
			return nil
		}, limit)
		uurl, client := serve(t, unary, true)
		surl, _ := serve(t, stream, true)
		c := clients{
			unary:  connect.NewClient[message, message](client, uurl+procedure),
			server: connect.NewClient[message, message](client, surl+procedure),
		}
		for _, i := range []int{0, 2} {
			if err := kinds[i].call(t.Context(), c, alice); (connect.CodeOf(err) == connect.CodeResourceExhausted) != (opts != nil) {
				t.Errorf("%s: %v with %d options", kinds[i].name, err, len(opts))
			}
		}
	}
}
