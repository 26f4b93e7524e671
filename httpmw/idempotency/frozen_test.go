package idempotency_test

import (
	"fmt"
	"io"
	"net/http"
	"testing"
	"time"

	"github.com/latchkey-go/latchkey/httpmw/idempotency"
	"github.com/latchkey-go/latchkey/internal/httptesting"
	"github.com/latchkey-go/latchkey/internal/lockertest"
	"github.com/latchkey-go/latchkey/internal/pgtest"
	"github.com/latchkey-go/latchkey/ratelimit"
	"github.com/latchkey-go/latchkey/sqllock"
)

// If a backend freezes while the handler runs, the request ends, its lock is
// free and its connection is not used again. The retry finds out whether the
// effect was done.
func TestBackendFrozen(t *testing.T) {
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
	i := b.once(locks)
	pid := 0
	s := b.serve(i, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		b.record(r)
		tx, _ := idempotency.Tx(r.Context())
		if err := tx.QueryRowContext(r.Context(), "SELECT pg_backend_pid()").Scan(&pid); err != nil {
			b.t.Error(err)
		}
		if err := c.FreezeBackend(pid); err != nil {
			b.t.Error(err)
		}
		w.WriteHeader(status)
	}))
	mustAsk(b.t, s, demand{key: "k-1"}).Want(b.t, response)
	again := b.serve(i, b.pay(http.StatusCreated))
	busy := mustAsk(b.t, again, demand{key: "k-1"}) // the lock is free; the row is not
	busy.Want(b.t, http.StatusConflict)
	if got := busy.Header.Get("Retry-After"); got != "2" {
		b.t.Errorf("Retry-After %q, want 2: the lock knows no better", got)
	}
	b.wantLog("admitted next to another")

	if err := c.ThawBackend(pid); err != nil {
		b.t.Fatal(err)
	}
	lockertest.Eventually(b.t, "the connection is destroyed and no other kept", func() bool {
		return b.number("SELECT count(*) FROM pg_stat_activity WHERE pid = $1", pid) == 0 && b.db.Stats().InUse == 0
	})
	r := mustAsk(b.t, again, demand{key: "k-1"})
	if r.Header.Get("Idempotency-Replayed") == "" { // it was rolled back
		r.Want(b.t, http.StatusCreated)
		status = http.StatusCreated
	}
	r.Want(b.t, status)
	b.wantEffects(map[int]int{http.StatusCreated: 1}[status])
}

// A request ends also if the server freezes before the claim. When the server
// is back, nothing has changed.
func TestServerFrozen(t *testing.T) {
	t.Parallel()
	for _, driver := range pgtest.Drivers() {
		t.Run(driver, func(t *testing.T) {
			t.Parallel()
			c := pgtest.New(t)
			b := newBank(t, driver, c.DSN(""))
			s := b.serve(b.once(sqllock.NewMemory()), b.pay(http.StatusCreated))
			first := mustAsk(t, s, demand{key: "k-0"})
			if err := c.Freeze(); err != nil {
				t.Fatal(err)
			}
			for _, key := range []string{"k-0", "k-1"} { // a connection of the pool, a new one
				mustAsk(t, s, demand{key: key}).Want(t, http.StatusServiceUnavailable)
			}
			b.wantLog("unavailable")
			if err := c.Thaw(); err != nil {
				t.Fatal(err)
			}
			lockertest.Eventually(t, "no connection is kept", func() bool { return b.db.Stats().InUse == 0 })
			wantReplay(t, mustAsk(t, s, demand{key: "k-0"}), first)
			mustAsk(t, s, demand{key: "k-1"}).Want(t, http.StatusCreated)
			b.wantEffects(2)
		})
	}
}

// A frozen holder keeps its key no longer than its transaction may be idle.
// Then another request does the effect, and the holder's response is an error.
func TestHolderFrozen(t *testing.T) {
	eachBank(t, func(t *testing.T, b *bank) {
		g := httptesting.NewGate(t)
		open := ratelimit.OneAtATime(locker{err: sqllock.ErrUnavailable}, "pay", ratelimit.WithFailOpen()) // as if its lock were lost
		frozen := b.serve(b.onceBy(open, idempotency.WithMaxIdle(100*time.Millisecond)), http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			b.record(r)
			g.ServeHTTP(w, r)
		}))
		other := b.serve(b.onceBy(open), b.pay(http.StatusCreated))
		first := asking(t, frozen, demand{key: "k-1"})
		httptesting.Receive(t, g.Inside, "first request")
		var r httptesting.Reply
		lockertest.Eventually(t, "the key is free", func() bool {
			r = mustAsk(t, other, demand{key: "k-1"})
			return r.StatusCode != http.StatusConflict
		})
		r.Want(t, http.StatusCreated)
		close(g.Leave)
		httptesting.Receive(t, first, "first response").Want(t, http.StatusServiceUnavailable)
		wantReplay(t, mustAsk(t, frozen, demand{key: "k-1"}), r)
		b.wantEffects(1)
	})
}

// The handler does not see the settings of the claim: lock_timeout is as
// before, and a stricter idle time stays.
func TestSettings(t *testing.T) {
	eachBank(t, func(t *testing.T, b *bank) {
		for name, tt := range map[string]struct{ set, want string }{
			"default":  {"SELECT 1", "0 1min"},
			"looser":   {"ALTER DATABASE %s SET idle_in_transaction_session_timeout = '2h'; ALTER DATABASE %s SET lock_timeout = '7s'", "7s 1min"},
			"stricter": {"ALTER DATABASE %s SET idle_in_transaction_session_timeout = '30s'", "0 30s"},
		} {
			t.Run(name, func(t *testing.T) {
				b.setUp("ALTER DATABASE %s RESET ALL; " + tt.set)
				s := b.serve(b.once(sqllock.NewMemory()), http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
					var settings string
					tx, _ := idempotency.Tx(r.Context())
					if err := tx.QueryRowContext(r.Context(), `SELECT current_setting('lock_timeout') || ' ' ||
						current_setting('idle_in_transaction_session_timeout')`).Scan(&settings); err != nil {
						t.Error(err)
					}
					_, _ = io.WriteString(w, settings)
				}))
				if got := mustAsk(t, s, demand{key: "k-" + name}).Text; got != tt.want {
					t.Errorf("settings %q, want %q", got, tt.want)
				}
			})
		}
	})
}
