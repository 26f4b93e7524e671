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

// The limit is per user, so someone must find out who that is, and the client's
// word is not enough: who can choose the key can choose a victim's, and lock it
// out. Authentication comes first, and leaves the user in the context.

// userOf is a toy: "alice-token" is Alice's. A real service verifies a signature
// or looks up a session here.
func userOf(authorization string) (user string, ok bool) {
	token, ok := strings.CutPrefix(authorization, "Bearer ")
	if !ok {
		return "", false
	}
	user, ok = strings.CutSuffix(token, "-token")
	return user, ok && user != ""
}

func tokenOf(user string) string { return user + "-token" }

type userKey struct{}

// userFrom is the user whom authentication has found, and the limit's key.
func userFrom(ctx context.Context) (user string, ok bool) {
	user, ok = ctx.Value(userKey{}).(string)
	return user, ok
}

// authenticate is authentication over HTTP.
func authenticate(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		user, ok := userOf(r.Header.Get("Authorization"))
		if !ok {
			w.Header().Set("WWW-Authenticate", "Bearer")
			http.Error(w, "who are you?", http.StatusUnauthorized)
			return
		}
		next.ServeHTTP(w, r.WithContext(context.WithValue(r.Context(), userKey{}, user)))
	})
}

// authenticateCall is authentication over gRPC.
func authenticateCall(ctx context.Context, req any, _ *grpc.UnaryServerInfo, next grpc.UnaryHandler) (any, error) {
	for _, value := range metadata.ValueFromIncomingContext(ctx, "authorization") {
		if user, ok := userOf(value); ok {
			return next(context.WithValue(ctx, userKey{}, user), req)
		}
	}
	return nil, status.Error(codes.Unauthenticated, "who are you?")
}
