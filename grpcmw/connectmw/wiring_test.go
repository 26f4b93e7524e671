package connectmw_test

import (
	"context"
	"errors"
	"net/http"
	"testing"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/latchkey-go/latchkey/grpcmw/connectmw"
	"github.com/latchkey-go/latchkey/internal/httptesting"
	"github.com/latchkey-go/latchkey/ratelimit"
	"github.com/latchkey-go/latchkey/sqllock"
)

// Mistakes are in the log once, without the key. What a client did wrong is not.
func TestReports(t *testing.T) {
	failing := func(err error) connectmw.KeyFunc {
		return func(context.Context, connectmw.Call) (string, error) { return "", err }
	}
	for _, tt := range []struct {
		name  string
		key   connectmw.KeyFunc
		twice bool
		parts []string // nil if nothing is logged
	}{
		{"no key", connectmw.FromContext(func(context.Context) (string, bool) { return "", false }), false, []string{"level=WARN", "is the interceptor after the authentication?"}},
		{"a fault", failing(errors.New("the directory is wrong")), false, []string{"level=ERROR", "a KeyFunc failed", "the directory is wrong"}},
		{"no such field", connectmw.Field("user.id"), false, []string{"level=ERROR", "the message has no field user"}},
		{"twice", connectmw.Header("User"), true, []string{"level=ERROR", "is the limit on its road twice?", "limit=1"}},
		{"bad id", failing(ratelimit.ErrBadID), false, nil},
		{"its own error", failing(connect.NewError(connect.CodeUnauthenticated, errors.New("log in"))), false, nil},
		{"served", connectmw.Header("User"), false, nil},
	} {
		for i, kind := range kinds {
			t.Run(tt.name+"/"+kind.name, func(t *testing.T) {
				var log httptesting.Logbook
				l := ratelimit.OneAtATime(sqllock.NewMemory(), namespace)
				opts := []connect.HandlerOption{limited(l, tt.key, connectmw.WithLogger(log.Logger()))}
				if tt.twice {
					opts = append([]connect.HandlerOption{limited(l, tt.key)}, opts...)
				}
				c := dial(t, handlers(nothing, opts...), 1)
				for range 3 {
					_ = kinds[i].call(t.Context(), c, "ada")
				}
				if tt.parts == nil {
					log.Want(t, "no mistake", 0)
					return
				}
				log.Want(t, "a mistake", 1, append(tt.parts, "namespace=test", "procedure="+service)...)
			})
		}
	}
}

// Health checks and reflection are not limited, unless asked for.
func TestExempt(t *testing.T) {
	for _, tt := range []struct {
		procedure string
		opts      []connectmw.Option
		limited   bool
	}{
		{"/grpc.health.v1.Health/Check", nil, false},
		{"/grpc.health.v1.Health/Check", []connectmw.Option{connectmw.WithAllServices()}, true},
		{"/grpc.reflection.v1.ServerReflection/ServerReflectionInfo", nil, false},
		{"/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo", nil, false},
		{"/grpc.health.v1.HealthOfMine/Check", nil, true},
	} {
		limit := limited(ratelimit.OneAtATime(httptesting.Failing{Err: sqllock.ErrHeld}, namespace), connectmw.Header("User"), tt.opts...)
		mux := http.NewServeMux()
		mux.Handle(tt.procedure, connect.NewUnaryHandler(tt.procedure, func(context.Context, *connect.Request[message]) (*connect.Response[message], error) {
			return connect.NewResponse(wrapperspb.String("done")), nil
		}, limit))
		mux.Handle(tt.procedure+"Stream", connect.NewServerStreamHandler(tt.procedure+"Stream", func(context.Context, *connect.Request[message], *connect.ServerStream[message]) error {
			return nil
		}, limit))
		url, client := serve(t, mux, true)
		c := clients{
			unary:  connect.NewClient[message, message](client, url+tt.procedure),
			server: connect.NewClient[message, message](client, url+tt.procedure+"Stream"),
		}
		for _, i := range []int{0, 2} {
			if err := kinds[i].call(t.Context(), c, alice); (connect.CodeOf(err) == connect.CodeResourceExhausted) != tt.limited {
				t.Errorf("%s, %s: %v", tt.procedure, kinds[i].name, err)
			}
		}
	}
}
