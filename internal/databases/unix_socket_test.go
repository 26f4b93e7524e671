package databases

import (
	"strings"
	"testing"
	"time"

	"github.com/latchkey-go/latchkey/internal/pgtest"
	"github.com/latchkey-go/latchkey/sqllock"
	"github.com/latchkey-go/latchkey/sqllock/lockwatch"
)

// Over a Unix socket a Session serves as over TCP: the end of its connection is
// noticed at the socket. Inspect reports such a client without an address.
func TestUnixSocket(t *testing.T) {
	eachDriver(t, func(t *testing.T, driver string) {
		server := pgtest.New(t)
		db := open(t, driver, strings.Replace(server.DSN(""), "127.0.0.1", "", 1)+"&host="+server.Dir())
		lock := mustLock(t, session(t, db, sqllock.WithLease(time.Hour)), sqllock.ID(1)) // only its watch can notice
		seen, err := lockwatch.Inspect(t.Context(), db)
		must(t, err)
		if holders, _ := seen.Find(sqllock.ID(1)); len(holders) != 1 || holders[0].Process.PID == 0 || holders[0].Process.Address != "" {
			t.Fatalf("holders: %+v, want a process without an address", holders)
		}
		number(t, db, "SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity WHERE application_name LIKE '%latchkey'")
		awaitLoss(t, lock)
	})
}
