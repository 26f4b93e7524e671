package dbconn

import (
	"context"
	"time"

	"github.com/latchkey-go/latchkey/internal/dialect"
)

// Call calls do, which needs a driver, and returns what do returns. If ctx ends
// before, Call reports false and leaves do behind, since a driver may be stuck
// and ignore its context. When do returns at last, late gets what it returns.
//
// This is the one way of the kit to bound a driver.
func Call[T any](ctx context.Context, do func() T, late func(T)) (result T, inTime bool) {
	done, left := make(chan T), make(chan struct{})
	go func() {
		result := do()
		select {
		case done <- result:
		case <-left:
			late(result)
		}
	}()
	select {
	case result = <-done:
		return result, true
	case <-ctx.Done():
		close(left)
		return result, false
	}
}

// forget is the function late of a Call that leaves nothing to undo.
func forget[T any](T) {}

// Within bounds a question to a server. It returns ErrSilence when timeout has
// passed.
func Within[T any](ctx context.Context, timeout time.Duration, ask func(context.Context) (T, error)) (none T, err error) {
	bounded, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	type answer struct {
		is  T
		err error
	}
	a, inTime := Call(bounded, func() (a answer) {
		a.is, a.err = ask(bounded)
		return a
	}, forget)
	switch {
	case inTime && (a.err == nil || bounded.Err() == nil):
		return a.is, a.err
	case ctx.Err() != nil:
		return none, ctx.Err()
	}
	return none, ErrSilence
}

// Do is Within for a question whose response is no more than an error.
func Do(ctx context.Context, timeout time.Duration, ask func(context.Context) error) error {
	_, err := Within(ctx, timeout, func(ctx context.Context) (struct{}, error) { return struct{}{}, ask(ctx) })
	return err
}

// InTime calls do and reports whether it has returned within timeout.
func InTime(timeout time.Duration, do func()) bool {
	ctx, cancel := context.WithTimeout(context.Background(), timeout)
	defer cancel()
	_, inTime := Call(ctx, func() struct{} { do(); return struct{}{} }, forget)
	return inTime
}

// ErrSilence is the failure of a server that does not respond to a question in
// time.
var ErrSilence error = &dialect.Failure{Kind: dialect.Gone, Reason: "the server did not answer a question in time"}
