package dbconn

import (
	"context"
	"time"

	"github.com/latchkey-go/latchkey/internal/dialect"
)

// Within bounds a question to a server. It returns ErrSilence when timeout has
// passed. If the driver ignores its context, Within leaves the driver and the
// question behind.
func Within[T any](ctx context.Context, timeout time.Duration, ask func(context.Context) (T, error)) (none T, err error) {
	bounded, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	type answer struct {
		is  T
		err error
	}
	answers := make(chan answer, 1)
	go func() {
		is, err := ask(bounded)
		answers <- answer{is, err}
	}()
	select {
	case a := <-answers:
		if a.err == nil || bounded.Err() == nil {
			return a.is, a.err
		}
	case <-bounded.Done():
	}
	if err := ctx.Err(); err != nil {
		return none, err
	}
	return none, ErrSilence
}

// ErrSilence is the failure of a server that does not respond to a question in
// time.
var ErrSilence error = &dialect.Failure{Kind: dialect.Gone, Reason: "the server did not answer a question in time"}
