package idempotency_test

import (
	"context"
	"net/http"
	"strings"
	"testing"

	"github.com/latchkey-go/latchkey/httpmw"
	"github.com/latchkey-go/latchkey/httpmw/idempotency"
	"github.com/latchkey-go/latchkey/internal/httptesting"
	"github.com/latchkey-go/latchkey/ratelimit"
	"github.com/latchkey-go/latchkey/sqllock"
)

// either returns a handler for requests with and without a key. It reports in a
// header whether there is a transaction, and pays in it.
func (b *bank) either() http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if _, ok := idempotency.Tx(r.Context()); ok {
			b.pay(http.StatusCreated)(w, r)
			return
		}
		if _, ok := w.(http.Flusher); !ok {
			b.t.Error("the writer of a request that passes is not net/http's")
		}
		b.do("INSERT INTO ledger VALUES ('passed')")
		w.WriteHeader(http.StatusAccepted)
	})
}

// A method decides whether a key is needed, counts, or means nothing.
func TestMethods(t *testing.T) {
	t.Parallel()
	b := oneBank(t)
	locks := sqllock.NewMemory()
	s, optional := b.serve(b.once(locks), b.either()), b.serve(b.once(locks, idempotency.WithOptionalKey()), b.either())
	const passes, once, rejected = http.StatusAccepted, http.StatusCreated, http.StatusBadRequest
	for _, tt := range []struct {
		method                           string
		without, optional, with, spoiled int
	}{
		{http.MethodGet, passes, passes, passes, passes},
		{http.MethodHead, passes, passes, passes, passes},
		{http.MethodOptions, passes, passes, passes, passes},
		{http.MethodTrace, passes, passes, passes, passes},
		{http.MethodPut, passes, passes, once, rejected},
		{http.MethodDelete, passes, passes, once, rejected},
		{http.MethodPost, rejected, passes, once, rejected},
		{http.MethodPatch, rejected, passes, once, rejected},
		{"MKCOL", rejected, passes, once, rejected},
	} {
		header := func(values ...string) demand {
			return demand{method: tt.method, header: http.Header{"Idempotency-Key": values}, who: "ada-" + tt.method}
		}
		for range 2 {
			mustAsk(t, s, header()).Want(t, tt.without)
			mustAsk(t, optional, header()).Want(t, tt.optional)
		}
		for _, d := range []demand{header("a b"), header("a", "b"), header("")} {
			mustAsk(t, s, d).Want(t, tt.spoiled)
			mustAsk(t, optional, d).Want(t, tt.spoiled)
		}
		b.do("DELETE FROM ledger")
		first, again := mustAsk(t, s, header("k-1")), mustAsk(t, optional, header("k-1"))
		first.Want(t, tt.with)
		if tt.with == passes {
			again.Want(t, passes)
			b.wantEffects(2)
		} else {
			wantReplay(t, again, first)
			b.wantEffects(1)
		}
	}
}

// WithKey's requests without a key are treated like those without the header.
// The response does not name the header. A KeyFunc that fails rejects them.
func TestWithKey(t *testing.T) {
	t.Parallel()
	b := oneBank(t)
	locks := sqllock.NewMemory()
	s := b.serve(b.once(locks, idempotency.WithKey(httpmw.Header("X-Event"))), b.either())
	event := func(method string, values ...string) demand {
		return demand{method: method, key: "k-1", header: http.Header{"X-Event": values}}
	}
	mustAsk(t, s, event(http.MethodPut)).Want(t, http.StatusAccepted)
	mustAsk(t, s, event(http.MethodPut, "1", "2")).Want(t, http.StatusBadRequest)
	none := mustAsk(t, s, event(http.MethodPost))
	if none.Want(t, http.StatusBadRequest); strings.Contains(none.Text, "Idempotency-Key") {
		t.Errorf("told of a header that does not count: %s", none.Text)
	}
	for _, id := range []string{"1", strings.Repeat("é ", 1000) + "1"} {
		first := mustAsk(t, s, event(http.MethodPut, id))
		first.Want(t, http.StatusCreated)
		wantReplay(t, mustAsk(t, s, event(http.MethodPut, id)), first)
	}
	b.wantEffects(3)

	empty := idempotency.WithKey(func(*http.Request) (string, error) { return "", nil })
	mustAsk(t, b.serve(b.once(locks, empty), b.either()), demand{}).Want(t, http.StatusBadRequest)
}

// A request that passes needs neither locks nor a principal nor a route, and
// the Observer gets no event for it.
func TestPassesWithoutLocks(t *testing.T) {
	t.Parallel()
	b := oneBank(t)
	heard := func(context.Context, ratelimit.Event) { t.Error("the Observer heard of a request that passes") }
	l := ratelimit.OneAtATime(httptesting.Failing{Err: sqllock.ErrUnavailable}, "pay", ratelimit.WithObserver(heard))
	nobody := httpmw.FromContext(func(context.Context) (string, bool) { return "", false })
	i := idempotency.New(b.db, l, nobody)
	mustAsk(t, httptesting.Serve(t, i.Handler(b.either())), demand{method: http.MethodPut}).Want(t, http.StatusAccepted)
	b.wantEffects(1)
}
