package idempotency_test

import (
	"fmt"
	"net/http"
	"slices"
	"testing"

	"github.com/latchkey-go/latchkey/httpmw/idempotency"
)

// wantDisposition sends a request twice to a handler that responds with status,
// and fails the test unless that many effects are committed and, if replayed,
// the handler runs once.
func (b *bank) wantDisposition(t *testing.T, i *idempotency.Middleware, status, effects int, replayed bool) {
	t.Helper()
	s := b.serve(i, b.pay(status))
	s.Client().CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	before, runs := b.number("SELECT count(*) FROM ledger"), b.runs.Load()
	d := demand{key: fmt.Sprint("k-", status)}
	first := mustAsk(t, s, d)
	first.Want(t, status)
	again := mustAsk(t, s, d)
	again.Want(t, status)
	if got := b.number("SELECT count(*) FROM ledger") - before; got != effects {
		t.Errorf("%d effects, want %d", got, effects)
	}
	if replayed {
		wantReplay(t, again, first)
	}
	if got := b.runs.Load() - runs; got != map[bool]int32{true: 1, false: 2}[replayed] {
		t.Errorf("%d runs, want a replay: %v", got, replayed)
	}
}

// The status decides what happens to effect and response. A response that a
// corrected or a later request would change is not stored.
func TestDispositions(t *testing.T) {
	eachBank(t, func(t *testing.T, b *bank) {
		i := b.once(b.locks())
		for _, status := range []int{200, 204, 303, 304} {
			t.Run(fmt.Sprint(status), func(t *testing.T) { b.wantDisposition(t, i, status, 1, true) })
		}
		t.Run("402", func(t *testing.T) { b.wantDisposition(t, i, http.StatusPaymentRequired, 0, true) })
		for _, status := range []int{
			400, 401, 403, 404, 405, 406, 407, 408, 409, 410, 411, 412, 413, 414, 415, 416, 417, 418, 419, 421, 422, 423, 424,
			425, 426, 428, 429, 431, 440, 444, 449, 451, 460, 499, 500, 502, 503, 504, 599, 700,
		} {
			t.Run(fmt.Sprint(status), func(t *testing.T) { b.wantDisposition(t, i, status, 0, false) })
		}
	})
}

// WithStoredErrors decides about errors, except those that say nothing about
// the request.
func TestWithStoredErrors(t *testing.T) {
	eachBank(t, func(t *testing.T, b *bank) {
		stored := []int{404, 409, 422, 500} // no longer 402
		i := b.once(b.locks(), idempotency.WithStoredErrors(func(status int) bool {
			if status < 400 {
				t.Errorf("asked about %d", status)
			}
			return slices.Contains(stored, status) || slices.Contains([]int{421, 444, 449, 460, 499}, status)
		}))
		for _, status := range stored {
			t.Run(fmt.Sprint(status), func(t *testing.T) { b.wantDisposition(t, i, status, 0, true) })
		}
		for _, status := range []int{402, 400, 421, 444, 449, 460, 499, 503} {
			t.Run(fmt.Sprint(status), func(t *testing.T) { b.wantDisposition(t, i, status, 0, false) })
		}
		t.Run("200", func(t *testing.T) { b.wantDisposition(t, i, http.StatusOK, 1, true) })
	})
}

// An error that a handler writes after its context has ended may be due to that
// alone: it is the response, and is never stored.
func TestErrorWhenInterrupted(t *testing.T) {
	for _, status := range []int{http.StatusPaymentRequired, http.StatusUnprocessableEntity, 499, http.StatusInternalServerError} {
		t.Run(fmt.Sprint(status), func(t *testing.T) {
			eachInterruption(t, func(t *testing.T, b *bank, in interruption) {
				i := b.once(b.locks(), idempotency.WithStoredErrors(func(int) bool { return true }))
				d, inside := demand{key: "k-1"}, make(chan struct{}, 1)
				end := func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(status) }
				if r := b.interrupt(in, i.Handler(b.waits(inside, end)), inside, d); r != nil {
					r.Want(t, status)
				}
				again := b.retry(b.serve(i, b.pay(http.StatusCreated)), d)
				if again.Want(t, http.StatusCreated); again.Header.Get("Idempotency-Replayed") != "" {
					t.Error("the error of an interrupted handler was stored")
				}
				b.wantEffects(1)
			})
		})
	}
}

// A payload that the handler rejects may be corrected and sent with its key.
func TestCorrectedPayload(t *testing.T) {
	t.Parallel()
	b := oneBank(t)
	i := b.once(b.locks())
	for _, status := range []int{400, 403, 404, 415, 422} {
		d := demand{key: fmt.Sprint("k-", status), body: "10 to nobody"}
		mustAsk(t, b.serve(i, b.pay(status)), d).Want(t, status)
		d.body = "10 to bob"
		mustAsk(t, b.serve(i, b.pay(http.StatusCreated)), d).Want(t, http.StatusCreated)
	}
	b.wantEffects(5)
}
