package idempotency_test

import (
	"net/http"
	"testing"

	"github.com/latchkey-go/latchkey/internal/httptesting"
	"github.com/latchkey-go/latchkey/internal/lockertest"
	"github.com/latchkey-go/latchkey/internal/pgtest"
)

// waiters returns how many backends wait for another transaction.
func (b *bank) waiters() int {
	b.t.Helper()
	return b.number(`SELECT count(*) FROM pg_stat_activity
		WHERE datname = current_database() AND wait_event_type = 'Lock' AND query LIKE 'INSERT INTO latchkey_responses%'`)
}

// The server stops while a handler runs, and is back later. The response is 503
// with Retry-After, and a retry has one effect.
func TestDatabaseAway(t *testing.T) {
	t.Parallel()
	for _, driver := range pgtest.Drivers() {
		t.Run(driver, func(t *testing.T) {
			t.Parallel()
			c := pgtest.New(t, pgtest.WithSettings(map[string]string{"synchronous_commit": "on"}))
			b := newBank(t, driver, c.DSN(""))
			g := httptesting.NewGate(t)
			i := b.once(b.locks())
			gated := b.serve(i, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				b.record(r)
				g.ServeHTTP(w, r)
			}))
			s := b.serve(i, b.pay(http.StatusOK))
			mustAsk(t, s, demand{key: "k-0"}).Want(t, http.StatusOK)

			first := asking(t, gated, demand{key: "k-1"})
			httptesting.Receive(t, g.Inside, "first request")
			if err := c.Kill(); err != nil {
				t.Fatal(err)
			}
			close(g.Leave)
			httptesting.Receive(t, first, "response without a server").Want(t, http.StatusServiceUnavailable)
			for _, key := range []string{"k-0", "k-1"} {
				mustAsk(t, s, demand{key: key}).Want(t, http.StatusServiceUnavailable)
			}
			b.wantLog("unavailable")
			if err := c.StartAgain(); err != nil {
				t.Fatal(err)
			}
			var r httptesting.Reply
			lockertest.Eventually(t, "the retry is served", func() bool {
				r = mustAsk(t, s, demand{key: "k-1"})
				return r.StatusCode == http.StatusOK
			})
			if mustAsk(t, s, demand{key: "k-0"}).Header.Get("Idempotency-Replayed") != "true" || r.Header.Get("Idempotency-Replayed") != "" {
				t.Error("want the first key's response replayed, and the second's made")
			}
			b.wantEffects(2)
		})
	}
}
