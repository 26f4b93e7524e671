package sqllock_test

import (
	"context"
	"errors"
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

func TestTokenErrors(t *testing.T) {
	eachDriver(t, func(t *testing.T, driver, dsn string) {
		s := session(t, driver, dsn)
		released := mustLock(t, s, sqllock.ID(1))
		unlock(t, released)
		reader, err := s.TryRLock(t.Context(), sqllock.ID(2))
		if err != nil {
			t.Fatal(err)
		}
		memory := sqllock.NewMemory()
		lost := mustLock(t, memory, sqllock.ID(3))
		memory.Lose()
		ended, cancel := context.WithCancel(t.Context())
		cancel()
		for _, tt := range []struct {
			name string
			ctx  context.Context
			lock *sqllock.Lock
			want error // nil: any
		}{
			{"released", t.Context(), released, sqllock.ErrReleased},
			{"lost", t.Context(), lost, sqllock.ErrLost},
			{"no lock", t.Context(), nil, sqllock.ErrUnavailable},
			{"ended context", ended, mustLock(t, s, sqllock.ID(4)), context.Canceled},
			{"of a Memory", t.Context(), mustLock(t, memory, sqllock.ID(5)), nil},
			{"of a reader", t.Context(), reader, nil},
		} {
			token, err := tt.lock.Token(tt.ctx)
			if token != "" || err == nil || tt.want != nil && !errors.Is(err, tt.want) {
				t.Errorf("%s: %q, %v, want %v", tt.name, token, err, tt.want)
			}
		}
	})
}
