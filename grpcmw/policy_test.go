package grpcmw_test

import (
	"context"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/latchkey-go/latchkey/grpcmw"
	"github.com/latchkey-go/latchkey/ratelimit"
	"github.com/latchkey-go/latchkey/sqllock"
)

// limitOf returns a policy in which each key has n places.
func limitOf(n int) ratelimit.Option {
	return ratelimit.WithLimit(func(context.Context, string) int { return n })
}

// A policy that fails is a fault of the server: INTERNAL, and a line in the log
// that names the limit.
func TestReportsPolicy(t *testing.T) {
	unknown := ratelimit.WithClasses(func(context.Context) string { return secret }, ratelimit.Class{Name: "interactive"})
	for name, policy := range map[string]ratelimit.Option{"no limit": limitOf(0), "no class": unknown} {
		for kind, call := range calls {
			for at, ns := range three {
				var log logbook
				levels := levelsWith(sqllock.NewMemory(), -1)
				levels[at] = grpcmw.Level{Limiter: ratelimit.AtMost(2, sqllock.NewMemory(), ns, policy), Key: constant(secret)}
				got := status.Convert(call(t.Context(), levels, nothing, log.option()))
				if got.Code() != codes.Internal || len(got.Details()) > 0 || got.Message() != "The server could not find out what the limit of the call is." {
					t.Errorf("%s, %s: %v, want INTERNAL", name, kind, got)
				}
				log.Want(t, name, 1, "level=ERROR", "the policy of a limit failed", "bad policy", string(ns))
			}
		}
	}
}
