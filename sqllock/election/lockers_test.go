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

// campaignLockers are the kinds of Locker. Each open is that of another
// process.
var campaignLockers = []struct {
	name   string
	tokens bool
	open   func(t *testing.T, driver string, dsns []string) sqllock.Locker
}{
	{"session", true, func(t *testing.T, driver string, dsns []string) sqllock.Locker {
		return dbtest.Session(t, driver, dsns[0])
	}},
	{"lease table", true, func(t *testing.T, driver string, dsns []string) sqllock.Locker {
		dsn := dsns[0]
		if driver == "pgx" {
			dsn += "&default_query_exec_mode=exec"
		}
		return dbtest.Session(t, driver, dsn, sqllock.WithLeaseTable())
	}},
	{"shard", true, func(t *testing.T, driver string, dsns []string) sqllock.Locker {
		return shard.New(dbtest.Session(t, driver, dsns[0]), dbtest.Session(t, driver, dsns[1]))
	}},
	{"transactions", false, func(t *testing.T, driver string, dsns []string) sqllock.Locker {
		return sqllock.PerTx(dbtest.Open(t, driver, dsns[0]))
	}},
	{"connection", false, func(t *testing.T, driver string, dsns []string) sqllock.Locker {
		conn, err := dbtest.Open(t, driver, dsns[0]).Conn(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = conn.Close() })
		return sqllock.OnConn(conn)
	}},
}

// With each kind of Locker one campaign leads, and the next takes over when it
// stops. If there are tokens, that of the later leader is the greater.
func TestLockers(t *testing.T) {
	for _, locker := range campaignLockers {
		t.Run(locker.name, func(t *testing.T) {
			dbtest.EachDriver(t, func(t *testing.T, driver, dsn string) {
				dsns := []string{dsn, pgtest.Database(t)}
				a := election.New(locker.open(t, driver, dsns), office)
				b := election.New(locker.open(t, driver, dsns), office)
				stopA := campaign(t, a, untilEnd)
				lockertest.Eventually(t, "the first one leads", func() bool { return a.Status().Leader })
				first := a.Status().Token
				campaign(t, b, untilEnd)
				if _, err := locker.open(t, driver, dsns).TryLock(t.Context(), office); !errors.Is(err, sqllock.ErrHeld) {
					t.Errorf("TryLock of the leader's key: %v", err)
				}
				wantLeader(t, 0, a, b)
				_ = stopA()
				lockertest.Eventually(t, "the second one leads", func() bool { return b.Status().Leader })
				wantLeader(t, 1, a, b)
				if second := b.Status().Token; locker.tokens != (first != "") || locker.tokens != (second > first) {
					t.Errorf("tokens %q and then %q", first, second)
				}
			})
		})
	}
}
