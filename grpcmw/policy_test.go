package grpcmw_test

import (
	"context"
	"strings"
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

// A policy that fails, and a limit that is in a stack twice, are mistakes of the
// server: INTERNAL, and a line in the log that names the limit. They are no
// mistake of the client.
func TestReportsPolicy(t *testing.T) {
	unknown := ratelimit.WithClasses(func(context.Context) string { return secret }, ratelimit.Class{Name: "interactive"})
	for kind, call := range calls {
		for at, ns := range three {
			for name, level := range map[string]grpcmw.Level{
				"no limit": {Limiter: ratelimit.AtMost(2, sqllock.NewMemory(), ns, limitOf(0)), Key: constant(secret)},
				"no class": {Limiter: ratelimit.AtMost(2, sqllock.NewMemory(), ns, unknown), Key: constant(secret)},
				"twice":    {Limiter: ratelimit.AtMost(2, sqllock.NewMemory(), ns), Key: constant("alice")},
			} {
				var log logbook
				levels := levelsWith(sqllock.NewMemory(), -1)
				if name == "twice" {
					levels = append(levels, level)
				} else {
					levels[at] = level
				}
				got := status.Convert(call(t.Context(), levels, nothing, log.option()))
				if got.Code() != codes.Internal || len(got.Details()) > 0 || !strings.HasPrefix(got.Message(), "The server failed to process the request.") {
					t.Errorf("%s, %s: %v, want INTERNAL", name, kind, got)
				}
				log.Want(t, name, 1, "level=ERROR", "the policy of a limit failed", "bad policy", string(ns))
			}
		}
	}
}
