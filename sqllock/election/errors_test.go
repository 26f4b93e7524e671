package election_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/latchkey-go/latchkey/sqllock"
	"github.com/latchkey-go/latchkey/sqllock/election"
)

// An error of the Locker, after the context has ended, does not hide the end of
// the context.
func TestContextEndsInError(t *testing.T) {
	for _, own := range []error{sqllock.ErrUnavailable, sqllock.ErrClosed, errBroken} {
		ctx, cancel := context.WithCancel(t.Context())
		c := election.New(lockerFunc(func(context.Context, sqllock.Key) (*sqllock.Lock, error) {
			cancel()
			return nil, own
		}), office)
		if err := c.Run(ctx, untilEnd); !errors.Is(err, context.Canceled) || !errors.Is(err, own) {
			t.Errorf("Run: %v, want context.Canceled and %v", err, own)
		}
	}
}

func TestLockerErrors(t *testing.T) {
	tests := []struct {
		err  error
		ends bool
	}{
		{sqllock.ErrUnavailable, false},
		{sqllock.ErrCapacity, false},
		{sqllock.ErrConfig, false},
		{errBroken, false},
		{sqllock.ErrClosed, true},
		{sqllock.ErrNotExclusive, true},
	}
	for _, tt := range tests {
		t.Run(tt.err.Error(), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				m := sqllock.NewMemory()
				var asked []time.Time
				c := election.New(lockerFunc(func(ctx context.Context, key sqllock.Key) (*sqllock.Lock, error) {
					if asked = append(asked, time.Now()); len(asked) <= 8 {
						return nil, tt.err
					}
					return m.Lock(ctx, key)
				}), office)
				stop := campaign(t, c, untilEnd)
				synctest.Wait()
				if err := c.Status().Err; err != tt.err {
					t.Errorf("Err of the status: %v", err)
				}
				time.Sleep(time.Minute)
				if tt.ends {
					wantLeader(t, -1, c)
					if err := stop(); err != tt.err || len(asked) != 1 {
						t.Errorf("Run: %v after %d attempts", err, len(asked))
					}
					return
				}
				wantLeader(t, 0, c)
				if c.Status().Err != nil {
					t.Errorf("Err of a leader's status: %v", c.Status().Err)
				}
				for i := 1; i < len(asked); i++ {
					if pause := asked[i].Sub(asked[i-1]); pause < time.Second/2 || pause > 3*time.Second {
						t.Errorf("attempt %d came %v after the one before", i, pause)
					}
				}
			})
		})
	}
}
