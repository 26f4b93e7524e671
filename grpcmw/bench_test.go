package grpcmw_test

import (
	"context"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/latchkey-go/latchkey/grpcmw"
	"github.com/latchkey-go/latchkey/ratelimit"
	"github.com/latchkey-go/latchkey/sqllock"
)

// BenchmarkUnary measures a unary call to a handler that does nothing: bare,
// and behind the interceptor on Memory that admits or rejects it. There is no
// server.
func BenchmarkUnary(b *testing.B) {
	pass := func(ctx context.Context, req any, _ *grpc.UnaryServerInfo, handler grpc.UnaryHandler) (any, error) {
		return handler(ctx, req)
	}
	l := ratelimit.OneAtATime(sqllock.NewMemory(), "bench")
	limited := grpcmw.UnaryServerInterceptor(l, grpcmw.Metadata("user"))
	b.Run("bare", func(b *testing.B) { benchmarkUnary(b, pass, codes.OK) })
	b.Run("memory", func(b *testing.B) { benchmarkUnary(b, limited, codes.OK) })
	b.Run("refused", func(b *testing.B) {
		lock, err := l.Acquire(b.Context(), "ada")
		if err != nil {
			b.Fatal(err)
		}
		defer lock.Unlock()
		benchmarkUnary(b, limited, codes.ResourceExhausted)
	})
}

func benchmarkUnary(b *testing.B, interceptor grpc.UnaryServerInterceptor, want codes.Code) {
	ctx, cancel := context.WithCancel(context.Background()) // it can end, as a call's can
	defer cancel()
	ctx = metadata.NewIncomingContext(ctx, metadata.Pairs("user", "ada"))
	info := &grpc.UnaryServerInfo{FullMethod: "/bench.Service/Call"}
	handler := func(_ context.Context, req any) (any, error) { return req, nil }
	b.ReportAllocs()
	var err error
	for b.Loop() {
		_, err = interceptor(ctx, nil, info, handler)
	}
	if got := status.Code(err); got != want {
		b.Fatalf("code %v, want %v", got, want)
	}
}
