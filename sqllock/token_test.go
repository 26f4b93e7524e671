package sqllock_test

import (
	"testing"

	"github.com/latchkey-go/latchkey/sqllock"
)

// Token returns one token for each lock, and a greater one for the next holder,
// in whichever Session.
func TestToken(t *testing.T) {
	eachDriver(t, func(t *testing.T, driver, dsn string) {
		db := fenced(t, driver, dsn)
		sessions := []*sqllock.Session{session(t, driver, dsn), session(t, driver, dsn)}
		last := ""
		for i := range 6 {
			lock := mustLock(t, sessions[i%2], sqllock.ID(1))
			if i%3 == 0 { // Fence requests the token
				if err := fencedWork(t.Context(), t, db, lock, "work"); err != nil {
					t.Fatal(err)
				}
			}
			token, err := lock.Token(t.Context())
			if err != nil || token <= last {
				t.Fatalf("token %q, %v after %q", token, err, last)
			}
			if again, err := lock.Token(t.Context()); err != nil || again != token {
				t.Errorf("the second call: %q, %v, want %q", again, err, token)
			}
			last = token
			unlock(t, lock)
		}
	})
}
