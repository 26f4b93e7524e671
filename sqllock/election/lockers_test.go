package election_test

import (
	"errors"
	"testing"

	"github.com/latchkey-go/latchkey/internal/dbtest"
	"github.com/latchkey-go/latchkey/internal/lockertest"
	"github.com/latchkey-go/latchkey/internal/pgtest"
	"github.com/latchkey-go/latchkey/sqllock"
	"github.com/latchkey-go/latchkey/sqllock/election"
	"github.com/latchkey-go/latchkey/sqllock/shard"
)

// With each kind of Locker one campaign leads, and the next takes over when it
// stops. If there are tokens, that of the later leader is the greater.
func TestLockers(t *testing.T) {
	for name, kind := range map[string]struct {
		tokens bool
		open   func(t *testing.T, dsns [2]string) sqllock.Locker // as another process would
	}{
		"session": {true, func(t *testing.T, dsns [2]string) sqllock.Locker {
			return dbtest.Session(t, "pgx", dsns[0])
		}},
		"lease table": {true, func(t *testing.T, dsns [2]string) sqllock.Locker {
			return dbtest.Session(t, "postgres", dsns[0], sqllock.WithLeaseTable())
		}},
		"shard": {true, func(t *testing.T, dsns [2]string) sqllock.Locker {
			return shard.New(dbtest.Session(t, "pgx", dsns[0]), dbtest.Session(t, "postgres", dsns[1]))
		}},
		"transactions": {false, func(t *testing.T, dsns [2]string) sqllock.Locker {
			return sqllock.PerTx(dbtest.Open(t, "pgx", dsns[0]))
		}},
		"connection": {false, func(t *testing.T, dsns [2]string) sqllock.Locker {
			return sqllock.OnConn(dbtest.Conn(t, dbtest.Open(t, "postgres", dsns[0])))
		}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dsns := [2]string{pgtest.Database(t), pgtest.Database(t)}
			a, b := election.New(kind.open(t, dsns), office), election.New(kind.open(t, dsns), office)
			stopA := campaign(t, a, untilEnd)
			lockertest.Eventually(t, "the first one leads", func() bool { return a.Status().Leader })
			first := a.Status().Token
			campaign(t, b, untilEnd)
			if _, err := kind.open(t, dsns).TryLock(t.Context(), office); !errors.Is(err, sqllock.ErrHeld) {
				t.Errorf("TryLock of the leader's key: %v", err)
			}
			wantLeader(t, 0, a, b)
			_ = stopA()
			lockertest.Eventually(t, "the second one leads", func() bool { return b.Status().Leader })
			wantLeader(t, 1, a, b)
			if second := b.Status().Token; kind.tokens != (first != "") || kind.tokens != (second > first) {
				t.Errorf("tokens %q and then %q", first, second)
			}
		})
	}
}
