package redispeer

import (
	"context"
	"errors"
	"net/http"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
)

// Handler is next behind l; the id is in the header field called name. A busy id
// is answered 429, and 503 stands for a Redis that does not answer.
func (l *Limiter) Handler(name string, next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		give, err := l.Acquire(r.Context(), r.Header.Get(name))
		switch {
		case errors.Is(err, ErrBusy):
			w.Header().Set("Retry-After", "1")
			http.Error(w, "busy", http.StatusTooManyRequests)
			return
		case err != nil:
			http.Error(w, "unavailable", http.StatusServiceUnavailable)
			return
		}
		defer func() { _ = give() }() // its lifetime frees what could not be deleted
		next.ServeHTTP(w, r)
	})
}

// UnaryServerInterceptor is Handler for gRPC; the id is in the metadata.
func (l *Limiter) UnaryServerInterceptor(name string) grpc.UnaryServerInterceptor {
	return func(ctx context.Context, req any, _ *grpc.UnaryServerInfo, handler grpc.UnaryHandler) (any, error) {
		var id string
		if values := metadata.ValueFromIncomingContext(ctx, name); len(values) > 0 {
			id = values[0]
		}
		give, err := l.Acquire(ctx, id)
		switch {
		case errors.Is(err, ErrBusy):
			return nil, status.Error(codes.ResourceExhausted, "busy")
		case err != nil:
			return nil, status.Error(codes.Unavailable, "unavailable")
		}
		defer func() { _ = give() }()
		return handler(ctx, req)
	}
}
