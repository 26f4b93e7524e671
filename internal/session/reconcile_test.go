package session

import (
	"testing"
	"time"

	"github.com/latchkey-go/latchkey/internal/dialect"
)

// A forgetful is a session that cannot say what it holds, for a number of times.
type forgetful struct {
	dialect.Session
	fails int
}

func (f *forgetful) Held() ([]dialect.Key, error) {
	if f.fails--; f.fails >= 0 {
		return nil, &dialect.Failure{Kind: dialect.Statement}
	}
	return nil, nil
}

// A Session that must know what it holds asks again soon, and then four times a
// second.
func TestHeldIsAskedAgain(t *testing.T) {
	withSession(t, func(t *testing.T, s *Session, _ *ageReader) {
		c := s.slots[0].conn
		for _, tt := range []struct {
			fails         int
			atLeast, most time.Duration
		}{{0, 0, 0}, {1, 1, 10 * time.Millisecond}, {20, 3 * time.Second, 5 * time.Second}} {
			c.session = &forgetful{fails: tt.fails}
			began := time.Now()
			_, err := c.heldKeys()
			if took := time.Since(began); err != nil || took < tt.atLeast || took > tt.most {
				t.Errorf("%d failures take %v (%v), want %v to %v", tt.fails, took, err, tt.atLeast, tt.most)
			}
		}
	})
}
