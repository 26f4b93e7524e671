package grpcmw_test

import (
	"context"
	"fmt"
	"time"

	"github.com/grpc-ecosystem/go-grpc-middleware/v2/interceptors"
	"github.com/grpc-ecosystem/go-grpc-middleware/v2/interceptors/selector"
	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	pb "google.golang.org/grpc/interop/grpc_testing"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/latchkey-go/latchkey/grpcmw"
	"github.com/latchkey-go/latchkey/ratelimit"
	"github.com/latchkey-go/latchkey/sqllock"
)

// userKey is where an authenticating interceptor puts the user it has verified.
type userKey struct{}

func login(user string) context.Context {
	return context.WithValue(context.Background(), userKey{}, user)
}

func authenticated(ctx context.Context) (string, bool) {
	user, ok := ctx.Value(userKey{}).(string)
	return user, ok
}

// call calls a method with intercept in front of its handler.
func call(ctx context.Context, intercept grpc.UnaryServerInterceptor, method string, req any, handler grpc.UnaryHandler) error {
	_, err := intercept(ctx, req, &grpc.UnaryServerInfo{FullMethod: method}, handler)
	return err
}

func done(context.Context, any) (any, error) { return nil, nil }

// A user's second export is rejected while the first runs. A service opens a
// sqllock.Session on its database instead of the Memory.
func ExampleUnaryServerInterceptor() {
	exports := ratelimit.OneAtATime(sqllock.NewMemory(), "export")
	intercept := grpcmw.UnaryServerInterceptor(exports, grpcmw.FromContext(authenticated))

	export := func(ctx context.Context, _ any) (any, error) {
		lock, _ := sqllock.FromContext(ctx)
		fmt.Println("alice exports, lock:", lock.Err())

		second := call(login("alice"), intercept, "/export.Service/Export", nil, done)
		fmt.Println("alice again:", second)
		other := call(login("bob"), intercept, "/export.Service/Export", nil, done)
		fmt.Println("bob:", other)
		return nil, nil
	}
	fmt.Println("alice:", call(login("alice"), intercept, "/export.Service/Export", nil, export))
	fmt.Println("alice later:", call(login("alice"), intercept, "/export.Service/Export", nil, done))
	// Output:
	// alice exports, lock: <nil>
	// alice again: rpc error: code = ResourceExhausted desc = The limit "export" admits one call at a time, and another call is in progress. Try again in 1 second.
	// bob: <nil>
	// alice: <nil>
	// alice later: <nil>
}

// Only some methods are limited. Package selector of go-grpc-middleware chooses
// them.
func ExampleUnaryServerInterceptor_selector() {
	exports := ratelimit.OneAtATime(sqllock.NewMemory(), "export")
	intercept := selector.UnaryServerInterceptor(
		grpcmw.UnaryServerInterceptor(exports, grpcmw.FromContext(authenticated)),
		selector.MatchFunc(func(_ context.Context, call interceptors.CallMeta) bool {
			return call.FullMethod() == "/export.Service/Export"
		}),
	)
	for _, method := range []string{"/export.Service/Export", "/export.Service/List"} {
		_ = call(login("alice"), intercept, method, nil, func(ctx context.Context, _ any) (any, error) {
			_, locked := sqllock.FromContext(ctx)
			fmt.Println(method, "has a lock:", locked)
			return nil, nil
		})
	}
	// Output:
	// /export.Service/Export has a lock: true
	// /export.Service/List has a lock: false
}

// Half of an upload's key is in its first message, with which the stream gets
// its lock. The other half is the user, so no user can block the upload of
// another.
func ExampleStreamServerInterceptor() {
	uploads := ratelimit.OneAtATime(sqllock.NewMemory(), "document")
	intercept := grpcmw.StreamServerInterceptor(uploads,
		grpcmw.Join(grpcmw.FromContext(authenticated), grpcmw.Field("response_status.message")))

	upload := func(_ any, stream grpc.ServerStream) error {
		ctx := stream.Context()
		_, locked := sqllock.FromContext(ctx)
		fmt.Println("at the start, locked:", locked)
		err := stream.RecvMsg(&pb.StreamingOutputCallRequest{})
		_, locked = sqllock.FromContext(ctx)
		fmt.Println("with the first message, locked:", locked)
		return err
	}
	info := &grpc.StreamServerInfo{FullMethod: "/docs.Service/Upload", IsClientStream: true}
	fmt.Println(intercept(nil, streamOf{oneMessage{"document-7"}, login("alice")}, info, upload))
	// Output:
	// at the start, locked: false
	// with the first message, locked: true
	// <nil>
}

// oneMessage is a stream whose client sends a name.
type oneMessage struct{ name string }

func (oneMessage) Context() context.Context     { return context.Background() }
func (oneMessage) SetHeader(metadata.MD) error  { return nil }
func (oneMessage) SendHeader(metadata.MD) error { return nil }
func (oneMessage) SetTrailer(metadata.MD)       {}
func (oneMessage) SendMsg(any) error            { return nil }

func (m oneMessage) RecvMsg(into any) error {
	into.(*pb.StreamingOutputCallRequest).ResponseStatus = &pb.EchoStatus{Message: m.name}
	return nil
}

// streamOf is a stream whose client has logged in.
type streamOf struct {
	oneMessage
	ctx context.Context
}

func (s streamOf) Context() context.Context { return s.ctx }

// The key is the user that authentication has verified.
func ExampleFromContext() {
	key := grpcmw.FromContext(authenticated)
	fmt.Println(key(login("alice"), interceptors.CallMeta{}))
	fmt.Println(key(context.Background(), interceptors.CallMeta{}))
	// Output:
	// alice <nil>
	//  ratelimit: no key in the request
}

// A client chooses its idempotency key. Joined with the user, it cannot be that
// of another user. The length of each part is in the key, so different parts
// never give the same key.
func ExampleJoin() {
	key := grpcmw.Join(grpcmw.FromContext(authenticated), grpcmw.Metadata("idempotency-key"))
	ctx := metadata.NewIncomingContext(login("alice"), metadata.Pairs("idempotency-key", "order-7"))
	fmt.Println(key(ctx, interceptors.CallMeta{}))
	// Output:
	// 5:alice7:order-7 <nil>
}

// A user's name that the client writes into its metadata is not verified.
// Mallory sends that of Alice, and blocks her as long as his call lasts.
func ExampleMetadata_incorrect() {
	exports := ratelimit.OneAtATime(sqllock.NewMemory(), "export")
	intercept := grpcmw.UnaryServerInterceptor(exports, grpcmw.Metadata("user")) // wrong: use FromContext

	from := func(user string) context.Context {
		return metadata.NewIncomingContext(login(user), metadata.Pairs("user", "alice"))
	}
	_ = call(from("mallory"), intercept, "/export.Service/Export", nil, func(context.Context, any) (any, error) {
		fmt.Println("alice:", call(from("alice"), intercept, "/export.Service/Export", nil, done))
		return nil, nil
	})
	// Output:
	// alice: rpc error: code = ResourceExhausted desc = The limit "export" admits one call at a time, and another call is in progress. Try again in 1 second.
}

// The key is a resource that the request names, for calls that have been
// authorized for it.
func ExampleField() {
	key := grpcmw.Field("response_status.message")
	req := &pb.SimpleRequest{ResponseStatus: &pb.EchoStatus{Message: "document-7"}}
	fmt.Println(key(login("alice"), interceptors.NewServerCallMeta("/docs.Service/Edit", nil, req)))
	fmt.Println(key(login("alice"), interceptors.NewServerCallMeta("/docs.Service/Edit", nil, &pb.SimpleRequest{})))
	fmt.Println(key(login("alice"), interceptors.NewServerCallMeta("/docs.Service/Edit", nil, &pb.Empty{})))
	// Output:
	// document-7 <nil>
	//  ratelimit: no key in the request: field "response_status.message" is not set or empty
	//  ratelimit: no key at "response_status.message" in grpc.testing.Empty: the message has no field response_status
}

// A KeyFunc of a service may fail with a gRPC status, and is called again with
// the first message of a stream.
func ExampleKeyFunc() {
	var key grpcmw.KeyFunc = func(ctx context.Context, call interceptors.CallMeta) (string, error) {
		if _, ok := authenticated(ctx); !ok {
			return "", status.Error(codes.Unauthenticated, "log in first")
		}
		switch req := call.ReqOrNil.(type) {
		case nil:
			return "", grpcmw.ErrNeedMessage
		case *pb.StreamingInputCallRequest:
			return string(req.GetPayload().GetBody()), nil
		default:
			return "", grpcmw.ErrNoKey
		}
	}
	fmt.Println(key(context.Background(), interceptors.CallMeta{}))
	fmt.Println(key(login("alice"), interceptors.CallMeta{}))
	upload := &pb.StreamingInputCallRequest{Payload: &pb.Payload{Body: []byte("file-7")}}
	fmt.Println(key(login("alice"), interceptors.CallMeta{ReqOrNil: upload}))
	// Output:
	//  rpc error: code = Unauthenticated desc = log in first
	//  ratelimit: the key is in the stream's first message
	// file-7 <nil>
}

// Two users edit one document at the same time. The calls conflict, and no
// quota is used up. The text is the service's own.
func ExampleWithConflict() {
	edits := ratelimit.OneAtATime(sqllock.NewMemory(), "document")
	intercept := grpcmw.UnaryServerInterceptor(edits, grpcmw.Field("response_status.message"),
		grpcmw.WithConflict(), grpcmw.WithBusyText("This document is being edited."))

	req := &pb.SimpleRequest{ResponseStatus: &pb.EchoStatus{Message: "document-7"}}
	_ = call(login("alice"), intercept, "/docs.Service/Edit", req, func(context.Context, any) (any, error) {
		fmt.Println(call(login("bob"), intercept, "/docs.Service/Edit", req, done))
		return nil, nil
	})
	// Output:
	// rpc error: code = Aborted desc = This document is being edited. Try again in 1 second.
}

// A balancer's health check has no user. It is not limited unless asked for.
func ExampleWithAllServices() {
	exports := ratelimit.OneAtATime(sqllock.NewMemory(), "export")
	key := grpcmw.FromContext(authenticated)
	for _, intercept := range []grpc.UnaryServerInterceptor{
		grpcmw.UnaryServerInterceptor(exports, key),
		grpcmw.UnaryServerInterceptor(exports, key, grpcmw.WithAllServices()),
	} {
		fmt.Println(call(context.Background(), intercept, "/grpc.health.v1.Health/Check", nil, done))
	}
	// Output:
	// <nil>
	// rpc error: code = InvalidArgument desc = ratelimit: no key in the request
}

// Clients read why, and when to try again, from the status's details.
func ExampleWithErrorDomain() {
	exports := ratelimit.OneAtATime(sqllock.NewMemory(), "export")
	intercept := grpcmw.UnaryServerInterceptor(exports, grpcmw.FromContext(authenticated),
		grpcmw.WithErrorDomain("export.example.com"))

	_ = call(login("alice"), intercept, "/export.Service/Export", nil, func(context.Context, any) (any, error) {
		err := call(login("alice"), intercept, "/export.Service/Export", nil, done)
		for _, detail := range status.Convert(err).Details() {
			switch d := detail.(type) {
			case *errdetails.ErrorInfo:
				fmt.Println(d.GetDomain(), d.GetReason(), d.GetMetadata())
			case *errdetails.RetryInfo:
				fmt.Println("again after", d.GetRetryDelay().AsDuration())
			case *errdetails.QuotaFailure:
				fmt.Println("quota of", d.GetViolations()[0].GetSubject())
			}
		}
		return nil, nil
	})
	// Output:
	// export.example.com CONCURRENCY_LIMIT_REACHED map[namespace:export]
	// again after 1s
	// quota of export
}

// gRPC clients retry by the policy in their service config. It has the code of
// the rejection in retryableStatusCodes. The server says when to retry.
func ExampleWithPushback() {
	exports := ratelimit.OneAtATime(sqllock.NewMemory(), "export")
	intercept := grpcmw.UnaryServerInterceptor(exports, grpcmw.FromContext(authenticated),
		grpcmw.WithPushback(250*time.Millisecond))

	transport := &recorder{}
	_ = call(login("alice"), intercept, "/export.Service/Export", nil, func(context.Context, any) (any, error) {
		ctx := grpc.NewContextWithServerTransportStream(login("alice"), transport)
		return nil, call(ctx, intercept, "/export.Service/Export", nil, done)
	})
	fmt.Println("trailer:", transport.trailer)
	// Output:
	// trailer: map[grpc-retry-pushback-ms:[250]]
}

// recorder stands for the connection to the client.
type recorder struct {
	grpc.ServerTransportStream
	trailer metadata.MD
}

func (r *recorder) SetTrailer(md metadata.MD) error {
	r.trailer = metadata.Join(r.trailer, md)
	return nil
}
