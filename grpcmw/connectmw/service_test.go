package connectmw_test

import (
	"context"
	"errors"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"testing"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/latchkey-go/latchkey/grpcmw/connectmw"
	"github.com/latchkey-go/latchkey/ratelimit"
	"github.com/latchkey-go/latchkey/sqllock"
)

const namespace sqllock.Namespace = "test"

const (
	alice   = "alice" // the user whose id must be nowhere
	service = "/test.v1.TestService/"
)

type (
	message = wrapperspb.StringValue
	work    = func(context.Context) error
	call    = func(ctx context.Context, c clients, user string) error
)

// clients has a client of each procedure.
type clients struct {
	unary, client, server, bidi *connect.Client[message, message]
}

// kinds are the kinds of call. Each sends the user in a header and in its first
// message.
var kinds = []struct {
	name string
	call call
}{
	{"unary", func(ctx context.Context, c clients, user string) error {
		_, err := c.unary.CallUnary(ctx, request(user))
		return err
	}},
	{"client", func(ctx context.Context, c clients, user string) error {
		stream := c.client.CallClientStream(ctx)
		stream.RequestHeader().Set("User", user)
		_ = stream.Send(wrapperspb.String(user)) // CloseAndReceive has the error
		_, err := stream.CloseAndReceive()
		return err
	}},
	{"server", func(ctx context.Context, c clients, user string) error {
		stream, err := c.server.CallServerStream(ctx, request(user))
		if err != nil {
			return err
		}
		defer stream.Close()
		for stream.Receive() {
		}
		return stream.Err()
	}},
	{"bidi", func(ctx context.Context, c clients, user string) error {
		stream := c.bidi.CallBidiStream(ctx)
		defer stream.CloseResponse()
		stream.RequestHeader().Set("User", user)
		_ = stream.Send(wrapperspb.String(user))
		_ = stream.CloseRequest()
		for {
			if _, err := stream.Receive(); errors.Is(err, io.EOF) {
				return nil
			} else if err != nil {
				return err
			}
		}
	}},
}

func request(user string) *connect.Request[message] {
	req := connect.NewRequest(wrapperspb.String(user))
	req.Header().Set("User", user)
	return req
}

// roads are the protocols with the versions of HTTP that they allow. A stream in
// both directions needs HTTP/2.
var roads = []struct {
	name  string
	http2 bool
	opts  []connect.ClientOption
}{
	{"Connect over HTTP/1.1", false, nil},
	{"Connect over HTTP/2", true, nil},
	{"Connect with JSON", false, []connect.ClientOption{connect.WithProtoJSON()}},
	{"gRPC over HTTP/2", true, []connect.ClientOption{connect.WithGRPC()}},
	{"gRPC-Web over HTTP/1.1", false, []connect.ClientOption{connect.WithGRPCWeb()}},
	{"gRPC-Web over HTTP/2", true, []connect.ClientOption{connect.WithGRPCWeb()}},
}

// sources are where a key is known: before the first message, or with it.
var sources = []struct {
	name string
	key  connectmw.KeyFunc
}{
	{"header", connectmw.Header("User")},
	{"message", connectmw.Field("value")},
}

// handlers returns the procedures of the service, which do w once they have
// received a message.
func handlers(w work, opts ...connect.HandlerOption) *http.ServeMux {
	mux := http.NewServeMux()
	mux.Handle(service+"Unary", connect.NewUnaryHandler(service+"Unary",
		func(ctx context.Context, _ *connect.Request[message]) (*connect.Response[message], error) {
			return connect.NewResponse(wrapperspb.String("done")), w(ctx)
		}, opts...))
	mux.Handle(service+"Client", connect.NewClientStreamHandler(service+"Client",
		func(ctx context.Context, s *connect.ClientStream[message]) (*connect.Response[message], error) {
			for first := true; s.Receive(); first = false {
				if first {
					if err := w(ctx); err != nil {
						return nil, err
					}
				}
			}
			return connect.NewResponse(wrapperspb.String("done")), s.Err()
		}, opts...))
	mux.Handle(service+"Server", connect.NewServerStreamHandler(service+"Server",
		func(ctx context.Context, _ *connect.Request[message], s *connect.ServerStream[message]) error {
			if err := w(ctx); err != nil {
				return err
			}
			return s.Send(wrapperspb.String("done"))
		}, opts...))
	mux.Handle(service+"Bidi", connect.NewBidiStreamHandler(service+"Bidi",
		func(ctx context.Context, s *connect.BidiStream[message, message]) error {
			if _, err := s.Receive(); err != nil {
				return err
			}
			if err := w(ctx); err != nil {
				return err
			}
			return s.Send(wrapperspb.String("done"))
		}, opts...))
	return mux
}

// serve starts a server of h and returns its URL with a client of its version of
// HTTP.
func serve(t *testing.T, h http.Handler, http2 bool) (string, *http.Client) {
	t.Helper()
	protocols := new(http.Protocols)
	protocols.SetHTTP1(!http2)
	protocols.SetUnencryptedHTTP2(http2)
	server := httptest.NewUnstartedServer(h)
	server.Config.Protocols = protocols
	server.Config.ErrorLog = log.New(io.Discard, "", 0)
	server.Start()
	transport := &http.Transport{Protocols: protocols}
	t.Cleanup(server.Close)
	t.Cleanup(transport.CloseIdleConnections)
	return server.URL, &http.Client{Transport: transport}
}

// dial starts a server of h, and returns its clients.
func dial(t *testing.T, h http.Handler, road int) clients {
	t.Helper()
	url, client := serve(t, h, roads[road].http2)
	to := func(name string) *connect.Client[message, message] {
		return connect.NewClient[message, message](client, url+service+name, roads[road].opts...)
	}
	return clients{to("Unary"), to("Client"), to("Server"), to("Bidi")}
}

func limited(l *ratelimit.Limiter, key connectmw.KeyFunc, opts ...connectmw.Option) connect.HandlerOption {
	return connect.WithInterceptors(connectmw.New(l, key, opts...))
}

// each runs f for each kind of call on each road, half of them with each source
// of the key.
func each(t *testing.T, f func(t *testing.T, road int, call call, key connectmw.KeyFunc)) {
	for i, road := range roads {
		for j, kind := range kinds {
			if kind.name == "bidi" && !road.http2 {
				continue
			}
			source := sources[(i+j)%len(sources)]
			t.Run(road.name+"/"+kind.name+"/"+source.name, func(t *testing.T) {
				t.Parallel()
				f(t, i, kind.call, source.key)
			})
		}
	}
}

func nothing(context.Context) error { return nil }
