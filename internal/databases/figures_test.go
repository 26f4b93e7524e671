package databases

import (
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/latchkey-go/latchkey/internal/lockertest"
	"github.com/latchkey-go/latchkey/sqllock"
)

// A Session on any kind of database has its figures, and believes in the locks
// that the database has. Its loss counts once.
func TestFigures(t *testing.T) {
	eachKind(t, func(t *testing.T, k kind, o lockertest.Orders) {
		var lost atomic.Int64
		observer := sqllock.Observer{Lost: func(cause string, locks int) {
			if cause != "connection" {
				t.Errorf("lost by %q, want connection", cause)
			}
			lost.Add(int64(locks))
		}}
		s := process(t, o, sqllock.WithObserver(observer), sqllock.WithHeartbeat(50*time.Millisecond))
		var locks []*sqllock.Lock
		for _, key := range []sqllock.Key{sqllock.ID(-1), sqllock.Pair(2, 3), sqllock.Namespace("export").Key("ada")} {
			locks = append(locks, mustLock(t, s, key))
		}
		db := open(t, o.Driver, o.DSN)
		list := s.Connections()
		if len(list) != 1 || len(list[0].Held) != number(t, db, k.locks) || len(list[0].Pending) != 0 {
			t.Fatalf("connections %+v, the database has %d locks", list, number(t, db, k.locks))
		}
		got := s.Stats()
		if got.Granted != 3 || got.TableSize != 0 || got.LeaseRemaining <= 0 || got.LeaseRemaining >= got.Lease || got.ExchangeTime.Count != got.Exchanges {
			t.Errorf("%+v", got)
		}
		if pid := list[0].PID; o.Driver == "mysql" {
			execute(t, db, fmt.Sprintf("KILL %d", pid))
		} else {
			if pid != 0 || !list[0].Start.IsZero() {
				t.Errorf("process %d since %v, of a row", pid, list[0].Start)
			}
			execute(t, db, "DELETE FROM latchkey_sessions")
		}
		for _, lock := range locks {
			<-lock.Context().Done()
		}
		lockertest.Eventually(t, "the Observer is told", func() bool { return lost.Load() == 3 })
		if got := s.Stats(); got.LossesBy["connection"] != 1 || got.Losses != 1 || got.LocksLost != 3 {
			t.Errorf("losses %v with %d locks, want one by connection with 3", got.LossesBy, got.LocksLost)
		}
	})
}
