package admission

import (
	"cmp"
	"context"
	"errors"
	"net/http"

	"github.com/latchkey-go/latchkey/sqllock"
)

// CarryBack gives r, the original request, what the handler left in its copy
// inner. net/http removes the files of the MultipartForm. Logs and metrics read
// the Pattern.
func CarryBack(r, inner *http.Request) {
	if r.MultipartForm == nil {
		r.MultipartForm = inner.MultipartForm
	}
	if r.Pattern == "" {
		r.Pattern = inner.Pattern
	}
}

// InterruptedBy returns why the bound context ctx of a handler has ended, or
// nil if it has not. Err of a bound context compares the clock with the lock's
// deadline. The loss of a lock counts before ctx ends: the handler may have
// seen it in [sqllock.Lock.Err] or [sqllock.Lock.Context] already.
func InterruptedBy(ctx context.Context) error {
	if err := ctx.Err(); err != nil {
		return cmp.Or(context.Cause(ctx), err)
	}
	if lock, ok := sqllock.FromContext(ctx); ok && errors.Is(lock.Err(), sqllock.ErrLost) {
		return sqllock.ErrLost
	}
	return nil
}
