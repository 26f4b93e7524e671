package idempotency_test

import (
	"fmt"
	"net/http"
	"slices"
	"testing"

	"github.com/latchkey-go/latchkey/httpmw/idempotency"
)

// The status decides what happens to effect and response. A response that a
// corrected or a later request would change is not stored. WithStoredErrors
// decides about errors.
func TestDispositions(t *testing.T) {
	t.Parallel()
	stores := idempotency.WithStoredErrors(func(status int) bool {
		if status < 400 {
			t.Errorf("asked about %d", status)
		}
		return slices.Contains([]int{404, 409, 422, 500}, status)
	})
	for _, tt := range []struct {
		name                       string
		opts                       []idempotency.Option
		committed, stored, retried []int
	}{
		{
			"by default", nil, []int{200, 204, 303, 304}, []int{402}, []int{
				400, 401, 404, 409, 412, 422, 429, 500, 503,
			},
		},
		{"WithStoredErrors", []idempotency.Option{stores}, []int{200}, []int{404, 409, 422, 500}, []int{402, 400, 503}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			b := oneBank(t)
			i := b.once(b.locks(), tt.opts...)
			for _, status := range tt.committed {
				b.wantDisposition(i, status, 1, true)
			}
			for _, status := range tt.stored {
				b.wantDisposition(i, status, 0, true)
			}
			for _, status := range tt.retried {
				b.wantDisposition(i, status, 0, false)
			}
		})
	}
}

// wantDisposition sends a request to a handler that responds with status, and
// sends it again. It fails the test unless that many effects are committed and,
// if replayed, the handler runs once. If not, the payload may be corrected.
func (b *bank) wantDisposition(i *idempotency.Middleware, status, effects int, replayed bool) {
	b.t.Helper()
	s := b.serve(i, b.pay(status))
	s.Client().CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	before, runs := b.number("SELECT count(*) FROM ledger"), b.runs.Load()
	d := demand{key: fmt.Sprint("k-", status)}
	first := mustAsk(b.t, s, d)
	first.Want(b.t, status)
	if !replayed {
		d.body = "corrected"
	}
	again := mustAsk(b.t, s, d)
	again.Want(b.t, status)
	if got := b.number("SELECT count(*) FROM ledger") - before; got != effects {
		b.t.Errorf("%d: %d effects, want %d", status, got, effects)
	}
	if replayed {
		wantReplay(b.t, again, first)
	}
	if got := b.runs.Load() - runs; got != map[bool]int32{true: 1, false: 2}[replayed] {
		b.t.Errorf("%d: %d runs, want a replay: %v", status, got, replayed)
	}
}
