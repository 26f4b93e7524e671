package lockui_test

import (
	"strings"
	"testing"
	"time"

	"github.com/latchkey-go/latchkey/internal/dbtest"
	"github.com/latchkey-go/latchkey/internal/lockertest"
	"github.com/latchkey-go/latchkey/internal/pgtest"
	"github.com/latchkey-go/latchkey/sqllock"
	"github.com/latchkey-go/latchkey/sqllock/lockui"
)

// A Session that has closed its connection while idle is not away, and its lease
// is not low.
func TestOverviewOfIdleClosed(t *testing.T) {
	t.Parallel()
	dsn := pgtest.Database(t)
	locks := dbtest.Session(t, "pgx", dsn, sqllock.WithIdleClose(time.Second))
	server := serve(t, lockui.New(dbtest.Open(t, "pgx", dsn), lockui.WithSession("main", locks)))
	lockertest.Eventually(t, "the connection is closed", func() bool { return locks.Stats().IdleClosed })
	_, body := get(t, server.URL+"/")
	contains(t, body, "<dt>Connections</dt><dd>0 (closed while idle)</dd>")
	for _, wrong := range []string{"(away)", "(low)"} {
		if strings.Contains(body, wrong) {
			t.Errorf("the page says %q of a Session that sleeps", wrong)
		}
	}
}
