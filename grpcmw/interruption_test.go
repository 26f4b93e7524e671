package grpcmw_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/latchkey-go/latchkey/internal/httptesting"
	"github.com/latchkey-go/latchkey/ratelimit"
	"github.com/latchkey-go/latchkey/sqllock"
)

// If the loss of the lock interrupts a handler, the call ends with a status that
// says so. It may have had effects, so gRPC's own retries are not told to repeat
// it. The handler's own error or response stays.
func TestInterruption(t *testing.T) {
	ctxErr := func(ctx context.Context) error { return ctx.Err() }
	tests := []struct {
		name   string
		ends   error // the lock's contexts, while the handler runs; nil: nothing does
		result func(context.Context) error
		want   codes.Code
	}{
		{"its context's error", sqllock.ErrLost, ctxErr, codes.Aborted},
		{"wrapped", sqllock.ErrLost, func(ctx context.Context) error { return fmt.Errorf("export: %w", ctx.Err()) }, codes.Aborted},
		{"a call of its own was canceled", sqllock.ErrLost, func(ctx context.Context) error { return status.FromContextError(ctx.Err()).Err() }, codes.Aborted},
		{"its context's cause", sqllock.ErrLost, context.Cause, codes.Aborted},
		{"with the session closed", sqllock.ErrClosed, ctxErr, codes.Aborted},
		{"the closed session's error", sqllock.ErrClosed, context.Cause, codes.Aborted},

		{"a response", sqllock.ErrLost, func(context.Context) error { return nil }, codes.OK},
		{"a status of its own", sqllock.ErrLost, func(context.Context) error { return status.Error(codes.NotFound, "no such export") }, codes.NotFound},
		{"an error of its own", sqllock.ErrLost, func(context.Context) error { return errors.New("no such export") }, codes.Unknown},
		{"a deadline of its own", sqllock.ErrLost, func(context.Context) error { return status.FromContextError(context.DeadlineExceeded).Err() }, codes.DeadlineExceeded},

		{"too long", ratelimit.ErrMaxHold, ctxErr, codes.DeadlineExceeded},
		{"too long, its cause", ratelimit.ErrMaxHold, context.Cause, codes.DeadlineExceeded},
		{"too long, a status of its own", ratelimit.ErrMaxHold, func(context.Context) error { return status.Error(codes.NotFound, "none") }, codes.NotFound},

		{"canceled by itself", nil, func(context.Context) error { return context.Canceled }, codes.Canceled},
		{"another lock's loss", nil, func(context.Context) error { return sqllock.ErrLost }, codes.Unknown},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			eachStack(t, func(t *testing.T, kind int, levels stack) {
				s := &service{work: func(ctx context.Context) error {
					if tt.ends != nil {
						lock, _ := sqllock.FromContext(ctx, namespace.Key(secret))
						lock.Cancel(tt.ends) // as its loss does
						httptesting.Receive(t, ctx.Done(), "the end of the context")
					}
					return tt.result(ctx)
				}}
				client := start(t, s, levels.limited(sqllock.NewMemory())...)
				var trailer metadata.MD
				err := kinds[kind].call(t.Context(), client, secret, grpc.Trailer(&trailer))
				got := status.Convert(err)
				if got.Code() != tt.want {
					t.Errorf("status %v, want %v", got, tt.want)
				}
				if trailer["grpc-retry-pushback-ms"] != nil {
					t.Error("a pushback after what may have had effects")
				}
				if got.Code() != codes.Aborted {
					return
				}
				if kinds := detailKinds(got); !slices.Equal(kinds, []string{"ErrorInfo", "RetryInfo"}) {
					t.Fatalf("details %v, want ErrorInfo and RetryInfo", kinds)
				}
				wantLost(t, err, namespace)
				if delay := retryDelay(t, got); delay < time.Second {
					t.Errorf("again after %v, want at least a second", delay)
				}
			})
		})
	}
}

// Of several interceptors the one whose lock ended the context chooses the
// status, which names its limit.
func TestInterruptionNamesItsLimit(t *testing.T) {
	for kind, call := range calls {
		for _, ending := range []string{"tenants", "users"} {
			locks := sqllock.NewMemory()
			perTenant, perUser := ratelimit.OneAtATime(locks, "tenants"), ratelimit.OneAtATime(locks, "users")
			err := call(t.Context(), one(perTenant, constant("acme")), func(ctx context.Context) error {
				held := map[string]*sqllock.Lock{}
				held["tenants"], _ = sqllock.FromContext(ctx)
				return call(ctx, one(perUser, constant(secret)), func(ctx context.Context) error {
					held["users"], _ = sqllock.FromContext(ctx) // the inner one
					held[ending].Cancel(ratelimit.ErrMaxHold)   // as its end does
					httptesting.Receive(t, ctx.Done(), "the end of the context")
					return ctx.Err()
				})
			})
			if got := status.Convert(err); got.Code() != codes.DeadlineExceeded || !strings.Contains(got.Message(), ending) {
				t.Errorf("%s: status %v; want DEADLINE_EXCEEDED of %s", kind, got, ending)
			}
		}
	}
}
