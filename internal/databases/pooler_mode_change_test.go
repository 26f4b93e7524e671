package databases

import (
	"errors"
	"strings"
	"testing"

	"github.com/latchkey-go/latchkey/internal/lockertest"
	"github.com/latchkey-go/latchkey/internal/pgtest"
	"github.com/latchkey-go/latchkey/sqllock"
)

// A PgBouncer turns from session mode to transaction mode under Sessions at
// work. No key is held twice. Callers get ErrNotExclusive until it turns back,
// and a new Session is rejected.
func TestLongPgBouncerTurnsToTransactionMode(t *testing.T) {
	t.Parallel()
	for _, driver := range pgtest.Drivers() {
		for _, reset := range []string{"server_reset_query_always = 0", "server_reset_query_always = 1"} {
			t.Run(driver+"/"+reset, func(t *testing.T) {
				t.Parallel()
				bouncer, o := bouncerOrders(t, inSession, driver)
				a, b := process(t, o), process(t, o) // with a short lease, after which the server frees what they leave
				tr := startTraffic(t, true, a, b)
				idle := process(t, o)
				held := mustLock(t, idle, sqllock.ID(1))
				reload(inTx, poolSize, reset)(t, bouncer, nil)
				for _, s := range []*sqllock.Session{a, b} {
					lockertest.Eventually(t, "callers are told", func() bool { // load may end a session before its heartbeat does
						lock, err := s.TryLock(t.Context(), sqllock.ID(2))
						if err == nil {
							_ = lock.Unlock()
						}
						return s.Stats().LossesBy["not_exclusive"] > 0 || errors.Is(err, sqllock.ErrNotExclusive)
					})
				}
				if _, err := sqllock.Open(t.Context(), open(t, driver, o.DSN)); !errors.Is(err, sqllock.ErrNotExclusive) || !strings.Contains(err.Error(), "pool in session mode") {
					t.Errorf("Open: %v, want ErrNotExclusive", err)
				}
				if err := held.Err(); err == nil {
					if lock, err := b.TryLock(t.Context(), sqllock.ID(1)); err == nil && held.Err() == nil {
						t.Errorf("a key is held twice")
						_ = lock.Unlock()
					}
				}
				reload(inSession, poolSize)(t, bouncer, nil)
				tr.flows("in session mode again")
				tr.end()
				t.Logf("%d losses; the idle holder: %v", tr.losses(), held.Err())
			})
		}
	}
}
