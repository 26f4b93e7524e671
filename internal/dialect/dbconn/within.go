package dbconn

import (
	"context"
	"time"

	"github.com/latchkey-go/latchkey/internal/dialect"
)

// inPatience bounds a question of a proof: errSilence when timeout has passed. A
// driver that heeds no context is left behind with the question.
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

var ErrSilence error = &dialect.Failure{Kind: dialect.Gone, Reason: "the server did not answer a question in time"}
