package session

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/latchkey-go/latchkey/internal/keytable"
)

// A secret whose check has no response is not used. A call that waits is told why
// when its context ends.
func TestSecretWithoutCheck(t *testing.T) {
	withSession(t, func(t *testing.T, s *Session, _ *ageReader) {
		for name, tt := range map[string]struct {
			refused error
			pause   time.Duration // before it is checked again
			waits   bool
			want    error
		}{
			"a call that only tries":       {nil, 0, false, ErrNoAnswer},
			"a call that waits":            {nil, 0, true, ErrNoAnswer},
			"one that only tries, refused": {ErrNotExclusive, 1, false, ErrNotExclusive},
			"one that waits, refused":      {ErrNotExclusive, 1, true, ErrNotExclusive},
			"one that tries after a pause": {ErrNotExclusive, 0, false, ErrNoAnswer},
		} {
			s.secrets = make(map[Secret]*secretState)
			if tt.refused != nil {
				s.secrets[Secret{}] = &secretState{err: tt.refused, retryAt: Now() + tt.pause}
			}
			ctx, cancel := context.WithTimeout(t.Context(), keytable.AwayFor+s.Timeout()-1)
			err := s.UseSecret(ctx, Secret{}, tt.waits)
			if cancel(); !errors.Is(err, tt.want) || errors.Is(err, context.DeadlineExceeded) != tt.waits {
				t.Errorf("%s: %v, want %v", name, err, tt.want)
			}
		}
	})
}

// The log says once that a secret is refused, until it is accepted.
func TestConflictIsLoggedOnce(t *testing.T) {
	withSession(t, func(t *testing.T, s *Session, _ *ageReader) {
		c, state := s.slots[0].conn, new(secretState)
		c.uses = make(map[Secret]bool)
		for i, tt := range []struct{ conflict, logs bool }{{false, false}, {true, true}, {true, false}, {false, false}, {true, true}} {
			if log := c.checked(Secret{}, state, tt.conflict, nil); (log != nil) != tt.logs {
				t.Errorf("check %d: the log has a line is %t, want %t", i, log != nil, tt.logs)
			}
		}
	})
}
