package databases

import (
	"testing"
	"time"

	"github.com/latchkey-go/latchkey/internal/lockertest"
	"github.com/latchkey-go/latchkey/sqllock"
)

// An idle Session keeps no connection on any kind of database, and no row of a
// lease table. The next call takes its lock as the first one did.
func TestIdleCloseOnEveryDatabase(t *testing.T) {
	eachKind(t, func(t *testing.T, k kind, o lockertest.Orders) {
		db, look := pool(t, o), open(t, o.Driver, o.DSN)
		db.SetConnMaxIdleTime(100 * time.Millisecond)
		s := session(t, db, append(o.Options(), sqllock.WithIdleClose(time.Second))...)
		other := process(t, o)
		secret := sqllock.Namespace("idle").Keyed([]byte("0123456789abcdef0123456789abcdef"))
		rotated := sqllock.Namespace("idle").Keyed([]byte("fedcba9876543210fedcba9876543210"))
		for range 2 { // the second time as the first
			awaitGrant(t, "no other Session uses another secret", s, secret.Key("a"))
			lock := mustLock(t, s, secret.Key("a"))
			if _, err := lock.Token(t.Context()); err != nil {
				t.Errorf("Token: %v", err)
			}
			if got, err := other.TryLock(t.Context(), secret.Key("a")); err == nil {
				_ = got.Unlock()
				t.Error("another Session has the lock too")
			}
			if err := lock.Unlock(); err != nil {
				t.Fatalf("Unlock: %v", err)
			}
			lockertest.Eventually(t, "the pool has no connection", func() bool {
				return s.Stats().IdleClosed && db.Stats().OpenConnections == 0
			})
			if got := s.Stats(); got.Connections != 0 || got.Losses != 0 || got.Held != 0 {
				t.Errorf("%d connections, %d losses, %d locks while idle", got.Connections, got.Losses, got.Held)
			}
			if k.locks == leaseRows {
				lockertest.Eventually(t, "only the other Session has a row", func() bool {
					return number(t, look, "SELECT count(*) FROM latchkey_sessions") == 1
				})
			}
			_ = other.Close() // it uses the secret, too
			other = process(t, o)
			// The server may end a connection later than its client.
			awaitGrant(t, "a new secret is used, while no Session uses the old one", other, rotated.Key("a"))
			_ = other.Close()
			other = process(t, o)
		}
	})
}
