package main

import (
	"context"
	"net/http"
	"strings"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
)

// The limit is per user. The user must be authenticated: a client that can choose
// the key can choose another user's key, and lock that user out.

// userOf stands for real authentication: "alice-token" is the token of alice. A
// service verifies a signature or looks up a session here.
func userOf(authorization string) (user string, ok bool) {
	token, ok := strings.CutPrefix(authorization, "Bearer ")
	if !ok {
		return "", false
	}
	user, ok = strings.CutSuffix(token, "-token")
	return user, ok && user != ""
}

type userKey struct{}

// userFrom returns the authenticated user. It is the key of the limit.
func userFrom(ctx context.Context) (user string, ok bool) {
	user, ok = ctx.Value(userKey{}).(string)
	return user, ok
}

// authenticate authenticates HTTP requests.
func authenticate(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		user, ok := userOf(r.Header.Get("Authorization"))
		if !ok {
			w.Header().Set("WWW-Authenticate", "Bearer")
			http.Error(w, "a token is required", http.StatusUnauthorized)
			return
		}
		next.ServeHTTP(w, r.WithContext(context.WithValue(r.Context(), userKey{}, user)))
	})
}

// authenticateCall authenticates gRPC calls.
func authenticateCall(ctx context.Context, req any, _ *grpc.UnaryServerInfo, next grpc.UnaryHandler) (any, error) {
	for _, value := range metadata.ValueFromIncomingContext(ctx, "authorization") {
		if user, ok := userOf(value); ok {
			return next(context.WithValue(ctx, userKey{}, user), req)
		}
	}
	return nil, status.Error(codes.Unauthenticated, "a token is required")
}
