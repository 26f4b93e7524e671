package connectmw_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/latchkey-go/latchkey/grpcmw/connectmw"
	"github.com/latchkey-go/latchkey/ratelimit"
	"github.com/latchkey-go/latchkey/sqllock"
)

type userKey struct{}

// authenticate stands for the real thing, which comes before the limit.
func authenticate(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		user := r.Header.Get("Authorization")
		next.ServeHTTP(w, r.WithContext(context.WithValue(r.Context(), userKey{}, user)))
	})
}

func userID(ctx context.Context) (string, bool) {
	user, ok := ctx.Value(userKey{}).(string)
	return user, ok
}

// A service uses a sqllock.Session on its database in place of the Memory.
func Example() {
	limit := ratelimit.OneAtATime(sqllock.NewMemory(), "export")
	interceptor := connectmw.New(limit, connectmw.FromContext(userID))

	const procedure = "/export.v1.ExportService/Export"
	var again func() error // a second call of the same user
	export := func(ctx context.Context, _ *connect.Request[wrapperspb.StringValue]) (*connect.Response[wrapperspb.StringValue], error) {
		if _, ok := sqllock.FromContext(ctx); ok {
			fmt.Println("the export holds its lock")
		}
		err := again()
		fmt.Println("meanwhile:", connect.CodeOf(err))
		var e *connect.Error
		if errors.As(err, &e) {
			fmt.Println("Retry-After:", e.Meta().Get("Retry-After"))
		}
		return connect.NewResponse(wrapperspb.String("done")), nil
	}
	server := httptest.NewServer(authenticate(connect.NewUnaryHandler(procedure, export, connect.WithInterceptors(interceptor))))
	defer server.Close()
	defer http.DefaultClient.CloseIdleConnections()

	client := connect.NewClient[wrapperspb.StringValue, wrapperspb.StringValue](http.DefaultClient, server.URL+procedure)
	call := func() error {
		req := connect.NewRequest(wrapperspb.String("2026"))
		req.Header().Set("Authorization", "ada")
		_, err := client.CallUnary(context.Background(), req)
		return err
	}
	again = call
	fmt.Println("the call:", call())

	// Output:
	// the export holds its lock
	// meanwhile: resource_exhausted
	// Retry-After: 1
	// the call: <nil>
}

// Each user one export, and ten in all.
func ExampleNewStack() {
	locks := sqllock.NewMemory()
	perUser, inAll := ratelimit.OneAtATime(locks, "export"), ratelimit.AtMost(10, locks, "exports-in-all")
	all := func(context.Context, connectmw.Call) (string, error) { return "all", nil }
	interceptor := connectmw.NewStack([]connectmw.Level{
		{Limiter: perUser, Key: connectmw.FromContext(userID)},
		{Limiter: inAll, Key: all},
	})
	handler := connect.NewUnaryHandler("/export.v1.ExportService/Export",
		func(ctx context.Context, _ *connect.Request[wrapperspb.StringValue]) (*connect.Response[wrapperspb.StringValue], error) {
			innermost, _ := sqllock.FromContext(ctx) // of the last level
			fmt.Println("it has a place of ada:", sqllock.Held(ctx, perUser.Namespace().Key("ada")), "and one of", innermost.Key().Namespace())
			return connect.NewResponse(wrapperspb.String("done")), nil
		}, connect.WithInterceptors(interceptor))
	server := httptest.NewServer(authenticate(handler))
	defer server.Close()
	defer http.DefaultClient.CloseIdleConnections()

	client := connect.NewClient[wrapperspb.StringValue, wrapperspb.StringValue](http.DefaultClient, server.URL+"/export.v1.ExportService/Export")
	req := connect.NewRequest(wrapperspb.String("2026"))
	req.Header().Set("Authorization", "ada")
	_, err := client.CallUnary(context.Background(), req)
	fmt.Println(err)

	// Output:
	// it has a place of ada: true and one of exports-in-all
	// <nil>
}

// show prints the key that a KeyFunc finds, or its error.
func show(key connectmw.KeyFunc) {
	id, err := key(context.WithValue(context.Background(), userKey{}, "ada"), connectmw.Call{
		Spec:    connect.Spec{Procedure: "/export.v1.ExportService/Export"},
		Header:  http.Header{"Tenant": {"acme"}, "Twice": {"a", "b"}},
		Message: wrapperspb.String("report-7"),
	})
	fmt.Printf("%q %v\n", id, err)
}

func ExampleFromContext() {
	show(connectmw.FromContext(userID))
	// Output: "ada" <nil>
}

func ExampleHeader() {
	show(connectmw.Header("Tenant"))
	show(connectmw.Header("Region"))
	show(connectmw.Header("Twice"))
	// Output:
	// "acme" <nil>
	// "" ratelimit: no key in the request: header "Region" is missing or empty
	// "" ratelimit: bad id: header "Twice" is given more than once
}

// The resource is a field of the request message.
func ExampleField() {
	show(connectmw.Field("value"))
	// Output: "report-7" <nil>
}

// One call at a time for each user and procedure.
func ExampleJoin() {
	procedure := func(_ context.Context, call connectmw.Call) (string, error) { return call.Spec.Procedure, nil }
	show(connectmw.Join(connectmw.FromContext(userID), procedure))
	show(connectmw.Join(procedure, connectmw.Header("Region")))
	// Output:
	// "3:ada31:/export.v1.ExportService/Export" <nil>
	// "" ratelimit: no key in the request: header "Region" is missing or empty
}
