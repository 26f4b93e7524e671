package lockdoctor_test

import (
	"strings"
	"testing"
	"time"

	"github.com/latchkey-go/latchkey/internal/dbtest"
	"github.com/latchkey-go/latchkey/internal/lockertest"
	"github.com/latchkey-go/latchkey/internal/pgtest"
	"github.com/latchkey-go/latchkey/sqllock"
	"github.com/latchkey-go/latchkey/sqllock/lockdoctor"
)

// A Session that has closed its connection while idle is healthy, and the
// examination does not wake it.
func TestHealthyWhileIdleClosed(t *testing.T) {
	t.Parallel()
	dsn := pgtest.Database(t)
	s := dbtest.Session(t, "pgx", dsn, sqllock.WithIdleClose(time.Second), sqllock.WithHeartbeat(100*time.Millisecond))
	lockertest.Eventually(t, "the connection is closed", func() bool { return s.Stats().IdleClosed })
	r := examine(t, dbtest.Open(t, "pgx", dsn), lockdoctor.WithSession(s))
	mustBeHealthy(t, r)
	if c, _ := r.Find("session"); c.State != lockdoctor.OK || !strings.Contains(c.Reason, "1 closed while idle") {
		t.Errorf("session: %+v", c)
	}
	if !s.Stats().IdleClosed {
		t.Error("the examination has opened the connection")
	}
}
