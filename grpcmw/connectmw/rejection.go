package connectmw

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"slices"
	"strconv"

	"connectrpc.com/connect"

	"github.com/latchkey-go/latchkey/internal/places"
	"github.com/latchkey-go/latchkey/internal/rpclimit"
	"github.com/latchkey-go/latchkey/ratelimit"
	"github.com/latchkey-go/latchkey/sqllock"
)

// newError returns s as an error. Each call gets one of its own, since an
// interceptor around may add to it.
func newError(s rpclimit.Status) *connect.Error {
	err := connect.NewError(connect.Code(s.Code), errors.New(s.Text))
	for _, message := range s.Details {
		if detail, wrong := connect.NewErrorDetail(message); wrong == nil {
			err.AddDetail(detail) // better without details than not at all
		}
	}
	if s.Retry > 0 {
		err.Meta().Set("Retry-After", strconv.FormatInt(rpclimit.Seconds(s.Retry), 10))
	}
	return err
}

// faultError returns the error of a call that the server is at fault for.
func faultError(text string) *connect.Error {
	return connect.NewError(connect.CodeInternal, errors.New(text))
}

// limit returns what the errors say about l.
func (i *Interceptor) limit(l *ratelimit.Limiter) rpclimit.Limit {
	return rpclimit.Limit{
		Namespace: string(l.Namespace()),
		Size:      l.Limit(),
		Domain:    i.domain,
		BusyText:  i.busyText,
		Conflict:  i.conflict,
	}
}

// keyRejection returns the rejection of a call whose KeyFunc for l has failed
// with err. It logs what the client cannot correct.
func (i *Interceptor) keyRejection(ctx context.Context, l *ratelimit.Limiter, call Call, err error) *connect.Error {
	if ended := endedBy(ctx, err); ended != nil {
		return ended
	}
	if own := (*connect.Error)(nil); errors.As(err, &own) {
		return own
	}
	var wrongField *rpclimit.FieldError // of every call of the procedure
	var missing *rpclimit.MissingError
	text := ""
	switch {
	case errors.As(err, &wrongField):
		i.report(ctx, call, slog.LevelError, failedText, named(l), slog.Any("error", err))
		text = wrongField.Error()
	case errors.Is(err, ErrNoKey), errors.Is(err, ErrNeedMessage): // no message will come
		text = ErrNoKey.Error()
		if errors.As(err, &missing) {
			text = missing.Error()
		}
		if !errors.Is(err, errNoMessage) {
			i.report(ctx, call, slog.LevelWarn, noKeyText, named(l), slog.Any("error", err))
		}
	case errors.Is(err, errRepeated):
		text = errRepeated.Error()
	case errors.Is(err, ratelimit.ErrBadID):
		text = "connectmw: bad key"
	case errors.Is(err, sqllock.ErrUnavailable):
		return newError(rpclimit.Away())
	default:
		i.report(ctx, call, slog.LevelError, failedText, named(l), slog.Any("error", err))
		return faultError(rpclimit.FaultText)
	}
	return connect.NewError(connect.CodeInvalidArgument, errors.New(text))
}

// limiterRejection returns the rejection of a call for which the limiters have
// failed with err.
func (i *Interceptor) limiterRejection(ctx context.Context, err error) *connect.Error {
	if errors.Is(err, ratelimit.ErrBusy) {
		return i.busy(err)
	}
	if ended := endedBy(ctx, err); ended != nil {
		return ended
	}
	switch {
	case errors.Is(err, ratelimit.ErrPolicy):
		return faultError(rpclimit.PolicyText)
	case errors.Is(err, ratelimit.ErrBadID):
		return connect.NewError(connect.CodeInvalidArgument, errors.New(err.Error())) // the text has the reason, not the key
	}
	return newError(rpclimit.Away())
}

// busy returns the rejection for a key that other calls hold. It names the level
// that is full, with the limit that the key has at the moment.
func (i *Interceptor) busy(err error) *connect.Error {
	full := places.Full(err)
	isFull := func(l Level) bool { return string(l.Limiter.Namespace()) == full.Namespace }
	level := max(0, slices.IndexFunc(i.levels, isFull))
	limit := i.limit(i.levels[level].Limiter)
	limit.Size = cmp.Or(full.Limit, limit.Size)
	return newError(limit.Busy(full.RetryAfter))
}

// interruption returns how a call ends whose handler has returned err. It returns
// nil if err does not come from the end of ctx by one of held, the locks to which
// ctx is bound. See [rpclimit.Limit.Interruption].
func (i *Interceptor) interruption(
	around, ctx context.Context, wanted *places.Wanted, held places.Held, err error,
) error {
	if err == nil || ctx.Err() == nil { // Err compares the clock
		return nil
	}
	var own *connect.Error
	if errors.As(err, &own) && hasOwnCode(own) {
		return nil
	}
	canceled := own != nil && own.Code() == connect.CodeCanceled
	limiter := cmp.Or(wanted.EndedBy(ctx, held), i.levels[0].Limiter)
	if s, ok := i.limit(limiter).Interruption(around, ctx, err, canceled); ok {
		return newError(s)
	}
	return nil
}

// hasOwnCode reports whether a handler has chosen the code of err itself. Then
// it is neither that of a context nor a lostError.
func hasOwnCode(err *connect.Error) bool {
	var lost lostError
	return err.Code() != connect.CodeCanceled && !errors.As(err.Unwrap(), &lost)
}

// endedBy returns the error for the end of ctx, the call's context, if err
// matches that, and otherwise nil. While the database is away, a wait that ends
// with the context has both errors. That of the context counts then.
func endedBy(ctx context.Context, err error) *connect.Error {
	ended := ctx.Err()
	switch {
	case ended == nil || !errors.Is(err, ended):
		return nil
	case errors.Is(ended, context.DeadlineExceeded):
		return connect.NewError(connect.CodeDeadlineExceeded, ended)
	}
	return connect.NewError(connect.CodeCanceled, ended)
}
