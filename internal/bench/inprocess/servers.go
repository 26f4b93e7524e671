package inprocess

import (
	"context"
	"net/http"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"

	"github.com/latchkey-go/latchkey/grpcmw"
	"github.com/latchkey-go/latchkey/httpmw"
	"github.com/latchkey-go/latchkey/ratelimit"
	"github.com/latchkey-go/latchkey/sqllock"
)

// userHeader is where a request says whose it is.
const userHeader = "User"

// Handler is a request through a handler that does nothing, bare or behind the
// middleware on Memory. No server is in it.
func Handler(limited bool) func(*testing.B) {
	return func(b *testing.B) {
		var h http.Handler = http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			w.WriteHeader(http.StatusNoContent)
		})
		if limited {
			l := ratelimit.OneAtATime(sqllock.NewMemory(), namespace)
			h = httpmw.New(l, httpmw.Header(userHeader)).Handler(h)
		}
		r, err := http.NewRequestWithContext(serving(b), http.MethodGet, "/", http.NoBody)
		if err != nil {
			b.Fatal(err)
		}
		r.Header.Set(userHeader, "user-1")
		w := &discardWriter{header: make(http.Header)}
		b.ReportAllocs()
		for b.Loop() {
			h.ServeHTTP(w, r)
		}
		if w.status != http.StatusNoContent {
			b.Fatalf("status %d", w.status)
		}
	}
}

// serving is a context that can end, as every request's in a server can.
func serving(b *testing.B) context.Context {
	ctx, cancel := context.WithCancel(context.Background())
	b.Cleanup(cancel)
	return ctx
}

// A discardWriter keeps the status alone.
type discardWriter struct {
	header http.Header
	status int
}

func (w *discardWriter) Header() http.Header         { return w.header }
func (w *discardWriter) WriteHeader(status int)      { w.status = status }
func (w *discardWriter) Write(p []byte) (int, error) { return len(p), nil }

// Unary is a unary call through a handler that does nothing, bare or behind the
// interceptor on Memory. No server is in it.
func Unary(limited bool) func(*testing.B) {
	return func(b *testing.B) {
		handler := func(_ context.Context, req any) (any, error) { return req, nil }
		call := func(ctx context.Context, req any, _ *grpc.UnaryServerInfo, handler grpc.UnaryHandler) (any, error) {
			return handler(ctx, req)
		}
		if limited {
			l := ratelimit.OneAtATime(sqllock.NewMemory(), namespace)
			call = grpcmw.UnaryServerInterceptor(l, grpcmw.Metadata(userHeader))
		}
		ctx := metadata.NewIncomingContext(serving(b), metadata.Pairs(userHeader, "user-1"))
		info := &grpc.UnaryServerInfo{FullMethod: "/bench.Service/Call"}
		b.ReportAllocs()
		for b.Loop() {
			if _, err := call(ctx, nil, info, handler); err != nil {
				b.Fatal(err)
			}
		}
	}
}
