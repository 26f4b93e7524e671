package idempotency_test

import (
	"fmt"
	"net/http"
	"testing"

	"github.com/latchkey-go/latchkey/httpmw/idempotency"
	"github.com/latchkey-go/latchkey/internal/httptesting"
	"github.com/latchkey-go/latchkey/internal/lockertest"
	"github.com/latchkey-go/latchkey/internal/pgtest"
	"github.com/latchkey-go/latchkey/sqllock"
)

// The server stops while a handler runs, and is back later. The response is 503
// with Retry-After, and a retry has one effect.
func TestLongDatabaseAway(t *testing.T) {
	t.Parallel()
	for _, driver := range pgtest.Drivers() {
		t.Run(driver, func(t *testing.T) {
			t.Parallel()
			c := pgtest.New(t, pgtest.WithSettings(map[string]string{"synchronous_commit": "on"}))
			b := newBank(t, driver, c.DSN(""))
			g := httptesting.NewGate(t)
			i := b.once(b.locks())
			gated, s := b.serve(i, b.gated(g)), b.serve(i, b.pay(http.StatusOK))
			zero := mustAsk(t, s, demand{key: "k-0"})
			zero.Want(t, http.StatusOK)

			first := asking(t, gated, demand{key: "k-1"})
			httptesting.Receive(t, g.Inside, "first request")
			if err := c.Kill(); err != nil {
				t.Fatal(err)
			}
			close(g.Leave)
			wantLater(t, httptesting.Receive(t, first, "response without a server"), http.StatusServiceUnavailable)
			for _, key := range []string{"k-0", "k-1"} {
				wantLater(t, mustAsk(t, s, demand{key: key}), http.StatusServiceUnavailable)
			}
			b.wantLog("unavailable")
			if err := c.StartAgain(); err != nil {
				t.Fatal(err)
			}
			if r := b.retry(s, demand{key: "k-1"}); r.StatusCode != http.StatusOK || isReplay(r) {
				t.Errorf("the retry has %d, replayed: %v; want 200 of a new run", r.StatusCode, isReplay(r))
			}
			wantReplay(t, b.retry(s, demand{key: "k-0"}), zero)
			b.wantEffects(2)
		})
	}
}

// If a backend freezes while the handler runs, the request ends, its lock is
// free and its connection is not used again. The retry finds out whether the
// effect was done.
func TestLongBackendFrozen(t *testing.T) {
	t.Parallel()
	for _, driver := range pgtest.Drivers() {
		c := pgtest.New(t)
		for _, tt := range []struct{ status, response int }{
			{http.StatusCreated, http.StatusServiceUnavailable},
			{http.StatusPaymentRequired, http.StatusServiceUnavailable},
			{http.StatusInternalServerError, http.StatusInternalServerError}, // a rollback is enough
		} {
			t.Run(fmt.Sprint(driver, tt.status), func(t *testing.T) {
				t.Parallel()
				dsn, err := c.CreateDatabase(t.Context())
				if err != nil {
					t.Fatal(err)
				}
				newBank(t, driver, dsn).frozen(c, tt.status, tt.response)
			})
		}
	}
}

// frozen freezes the backend of a handler's transaction before the handler
// responds with status.
func (b *bank) frozen(c *pgtest.Cluster, status, response int) {
	b.t.Helper()
	locks := sqllock.NewMemory()
	pid := 0
	freezes := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		b.record(r)
		tx, _ := idempotency.Tx(r.Context())
		if err := tx.QueryRowContext(r.Context(), "SELECT pg_backend_pid()").Scan(&pid); err != nil {
			b.t.Error(err)
		}
		if err := c.FreezeBackend(pid); err != nil {
			b.t.Error(err)
		}
		w.WriteHeader(status)
	})
	frozen, first := b.serve(b.once(locks, shortBounds()), freezes), httptesting.Reply{}
	lockertest.Eventually(b.t, "the handler runs", func() bool { // on a busy machine not within the short bounds
		first = mustAsk(b.t, frozen, demand{key: "k-1"})
		return pid != 0 || first.StatusCode != http.StatusServiceUnavailable
	})
	first.Want(b.t, response)
	short, again := b.serve(b.once(locks, shortBounds()), b.pay(http.StatusCreated)), b.serve(b.once(locks), b.pay(http.StatusCreated))
	lockertest.Eventually(b.t, "409", func() bool { // the lock is free; the row is not
		return mustAsk(b.t, short, demand{key: "k-1"}).StatusCode == http.StatusConflict
	})
	b.wantLog("admitted next to another")

	if err := c.ThawBackend(pid); err != nil {
		b.t.Fatal(err)
	}
	lockertest.Eventually(b.t, "the connection is destroyed and no other kept", func() bool {
		return b.number("SELECT count(*) FROM pg_stat_activity WHERE pid = $1", pid) == 0 && b.db.Stats().InUse == 0
	})
	r := mustAsk(b.t, again, demand{key: "k-1"})
	if !isReplay(r) { // it was rolled back
		status = http.StatusCreated
	}
	r.Want(b.t, status)
	b.wantEffects(map[int]int{http.StatusCreated: 1}[status])
}

// A frozen holder keeps its key no longer than its transaction may be idle.
// TestSettings shows for how long that is. Then another request does the effect,
// and the holder's response is an error.
func TestHolderFrozen(t *testing.T) {
	eachBank(t, func(t *testing.T, b *bank) {
		g := httptesting.NewGate(t)
		frozen := b.serve(b.onceBy(away()), http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { // as if its lock were lost
			b.record(r)
			tx, _ := idempotency.Tx(r.Context())
			if _, err := tx.ExecContext(r.Context(), "SET LOCAL idle_in_transaction_session_timeout = '1ms'"); err != nil {
				t.Error(err)
			}
			g.ServeHTTP(w, r)
		}))
		first := asking(t, frozen, demand{key: "k-1"})
		httptesting.Receive(t, g.Inside, "first request")
		r := b.retry(b.serve(b.onceBy(away()), b.pay(http.StatusCreated)), demand{key: "k-1"})
		r.Want(t, http.StatusCreated)
		close(g.Leave)
		wantLater(t, httptesting.Receive(t, first, "first response"), http.StatusServiceUnavailable)
		wantReplay(t, mustAsk(t, frozen, demand{key: "k-1"}), r)
		b.wantEffects(1)
	})
}
