package rpclimit

import (
	"context"
	"errors"
	"strconv"

	"google.golang.org/genproto/googleapis/rpc/code"

	"github.com/latchkey-go/latchkey/ratelimit"
	"github.com/latchkey-go/latchkey/sqllock"
)

// Interruption returns how a call ends whose handler has returned err, if err
// is the end of ctx by the lock to which ctx is bound. canceled reports whether
// err is the transport's form of [context.Canceled]. Otherwise it returns
// false:
//
//   - err is the handler's own, or
//   - ctx ended with around, the call's context outside of the lock. Then the
//     client has left, or the lock of an interceptor around has ended. That
//     interceptor chooses the status.
func (l Limit) Interruption(around, ctx context.Context, err error, canceled bool) (Status, bool) {
	if err == nil || ctx.Err() == nil { // Err compares the clock
		return Status{}, false
	}
	cause := context.Cause(ctx)
	if around.Err() != nil && errors.Is(context.Cause(around), cause) {
		return Status{}, false
	}
	ends := canceled || errors.Is(err, context.Canceled) || errors.Is(err, cause)
	switch {
	case errors.Is(cause, sqllock.ErrLost), errors.Is(cause, sqllock.ErrClosed):
		if ends || errors.Is(err, sqllock.ErrLost) {
			return l.lost(), true
		}
	case errors.Is(cause, ratelimit.ErrMaxHold) && ends:
		text := "The call took longer than the limit " + strconv.Quote(l.Namespace) + " allows."
		return Status{Code: code.Code_DEADLINE_EXCEEDED, Text: text}, true
	}
	return Status{}, false
}
