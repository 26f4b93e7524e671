package idempotency_test

import (
	"fmt"
	"net/http"
	"slices"
	"testing"

	"github.com/latchkey-go/latchkey/httpmw/idempotency"
	"github.com/latchkey-go/latchkey/sqllock"
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
	for name, tt := range map[string]struct {
		opts                       []idempotency.Option
		committed, stored, retried []int
	}{
		"by default":       {nil, []int{200, 204, 303, 304}, []int{402}, []int{400, 401, 404, 409, 412, 422, 429, 500, 503}},
		"WithStoredErrors": {[]idempotency.Option{stores}, []int{200}, []int{404, 409, 422, 500}, []int{402, 400, 503}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := oneBank(t)
			i := b.once(sqllock.NewMemory(), tt.opts...)
			for _, status := range slices.Concat(tt.committed, tt.stored, tt.retried) {
				b.do("DELETE FROM ledger")
				b.runs.Store(0)
				s, d := b.serve(i, b.pay(status)), demand{key: fmt.Sprint("k-", status)}
				s.Client().CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
				first := mustAsk(t, s, d)
				first.Want(t, status)
				runs := int32(1)
				if slices.Contains(tt.retried, status) {
					runs, d.body = 2, "corrected"
				}
				again := mustAsk(t, s, d)
				if again.Want(t, status); runs == 1 {
					wantReplay(t, again, first)
				}
				if got := b.runs.Load(); got != runs {
					t.Errorf("%d: %d runs, want %d", status, got, runs)
				}
				b.wantEffects(map[bool]int{true: 1}[slices.Contains(tt.committed, status)])
			}
		})
	}
}
