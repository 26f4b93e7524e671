package databases

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/latchkey-go/latchkey/internal/lockertest"
	"github.com/latchkey-go/latchkey/internal/mariadbtest"
	"github.com/latchkey-go/latchkey/sqllock"
)

// holder returns the connection that holds the locks of keys.
func holder(t *testing.T, db *sql.DB) int {
	t.Helper()
	return number(t, db, "SELECT max(thread_id)"+keyLocks)
}

// The watch on the socket notices a killed connection long before a heartbeat
// does.
func TestMySQLLossIsToldAtOnce(t *testing.T) {
	t.Parallel()
	for name, options := range map[string]string{
		"plain": "", "TLS": "?tls=skip-verify", "compressed": "?compress=true",
		"bounded reads": "?readTimeout=5m&interpolateParams=true&parseTime=true",
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			o := mariadb(t)
			db := open(t, o.Driver, o.DSN)
			o.DSN += options
			s := process(t, o, sqllock.WithLease(10*time.Minute))
			if !s.Stats().Watched {
				t.Error("the socket is not watched")
			}
			for range 3 {
				lock := mustLock(t, s, sqllock.ID(1))
				execute(t, db, fmt.Sprintf("KILL CONNECTION %d", holder(t, db)))
				awaitLoss(t, lock)
				if cause := context.Cause(lock.Context()); cause != sqllock.ErrLost {
					t.Errorf("cause: %v, want ErrLost", cause)
				}
				awaitGrant(t, "the Session serves again", s, sqllock.ID(1))
			}
		})
	}
}

// Open rejects a server that was made a replica. A Session on it gives up its
// locks: callers that connect to the new primary acquire them.
func TestMySQLReadOnly(t *testing.T) {
	t.Parallel()
	server := mariadbtest.New(t)
	o := lockertest.Orders{Driver: "mysql", DSN: server.Database(t)}
	s := process(t, o, steady...)
	lock := mustLock(t, s, sqllock.ID(1))
	must(t, server.Execute("SET GLOBAL read_only = 1"))
	awaitLoss(t, lock)
	if _, err := sqllock.Open(t.Context(), pool(t, o)); !errors.Is(err, sqllock.ErrNotExclusive) || !strings.Contains(err.Error(), "read-only") {
		t.Errorf("Open on a read-only server: %v", err)
	}
	if _, err := s.TryLock(t.Context(), sqllock.ID(1)); !errors.Is(err, sqllock.ErrNotExclusive) && !errors.Is(err, sqllock.ErrUnavailable) {
		t.Errorf("TryLock on a read-only server: %v", err)
	}
	must(t, server.Execute("SET GLOBAL read_only = 0"))
	awaitGrant(t, "the Session serves again", s, sqllock.ID(1))
}
