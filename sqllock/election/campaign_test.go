package election_test

import (
	"context"
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/latchkey-go/latchkey/sqllock"
	"github.com/latchkey-go/latchkey/sqllock/election"
)

var (
	errBroken = errors.New("broken")
	office    = sqllock.Namespace("campaign").Key("office")
)

// untilEnd leads until its context ends.
func untilEnd(ctx context.Context) error {
	<-ctx.Done()
	return ctx.Err()
}

// campaign runs c in a goroutine. stop ends its context and returns the error
// of Run.
func campaign(t *testing.T, c *election.Campaign, lead func(context.Context) error) (stop func() error) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	result := make(chan error, 1)
	go func() { result <- c.Run(ctx, lead) }()
	stop = sync.OnceValue(func() error { cancel(); return <-result })
	t.Cleanup(func() { _ = stop() })
	return stop
}

// wantLeader checks that the campaign at index leader leads and no other. With
// -1 none leads.
func wantLeader(t *testing.T, leader int, campaigns ...*election.Campaign) {
	t.Helper()
	for i, c := range campaigns {
		if s := c.Status(); s.Leader != (i == leader) {
			t.Fatalf("status of %d: %+v; the leader should be %d", i, s, leader)
		}
	}
}

func TestStatus(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := sqllock.NewMemory()
		c := election.New(m, office)
		if s := c.Status(); s != (election.Status{}) {
			t.Errorf("before Run: %+v", s)
		}
		other, err := m.TryLock(t.Context(), office)
		if err != nil {
			t.Fatal(err)
		}
		held := make(chan bool, 1)
		stop := campaign(t, c, func(ctx context.Context) error {
			lock, ok := sqllock.FromContext(ctx)
			held <- ok && lock.Key() == office && lock.Err() == nil
			return untilEnd(ctx)
		})
		synctest.Wait()
		if s := c.Status(); s != (election.Status{}) {
			t.Errorf("while another leads: %+v", s)
		}
		time.Sleep(time.Hour)
		if err := other.Unlock(); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		elected := time.Now()
		if !<-held {
			t.Error("the leader's context does not carry the lock")
		}
		time.Sleep(time.Hour)
		if s := c.Status(); !s.Leader || !s.Since.Equal(elected) || s.Terms != 1 || s.Err != nil || s.Token != "" {
			t.Errorf("while leading: %+v", s)
		}
		if err := stop(); err != context.Canceled {
			t.Errorf("Run: %v, want context.Canceled", err)
		}
		if s := c.Status(); s.Leader || !s.Since.IsZero() || s.Terms != 1 {
			t.Errorf("after Run: %+v", s)
		}
	})
}

// However a term ends, the key is released and the campaign that waits leads
// next. Later the first one stands again.
func TestTermEnds(t *testing.T) {
	tests := []struct {
		name string
		end  func(context.Context, *election.Campaign) error
		want error // in Status
	}{
		{"nil", func(context.Context, *election.Campaign) error { return nil }, nil},
		{"error", func(context.Context, *election.Campaign) error { return errBroken }, errBroken},
		{"resigns", func(ctx context.Context, c *election.Campaign) error { c.Resign(); return untilEnd(ctx) }, election.ErrResigned},
		{"resigns, nil", func(_ context.Context, c *election.Campaign) error { c.Resign(); return nil }, election.ErrResigned},
		{"resigns, and fails", func(_ context.Context, c *election.Campaign) error { c.Resign(); return errBroken }, errBroken},
		// It is not the Locker's error, which would end Run.
		{"another locker is closed", func(context.Context, *election.Campaign) error { return sqllock.ErrClosed }, sqllock.ErrClosed},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				m := sqllock.NewMemory()
				a, b := election.New(m, office), election.New(m, office)
				ending := make(chan struct{})
				stopA := campaign(t, a, func(ctx context.Context) error {
					<-ending
					return tt.end(ctx, a)
				})
				synctest.Wait()
				stopB := campaign(t, b, untilEnd)
				synctest.Wait()
				wantLeader(t, 0, a, b)
				close(ending)
				synctest.Wait()
				wantLeader(t, 1, a, b)
				if err := a.Status().Err; !errors.Is(err, tt.want) || tt.want == nil && err != nil {
					t.Errorf("Err of the status: %v, want %v", err, tt.want)
				}
				if err := stopB(); err != context.Canceled {
					t.Errorf("Run of the other: %v", err)
				}
				time.Sleep(time.Second)
				if n := a.Status().Terms; n < 2 {
					t.Errorf("it does not stand again: %d terms", n)
				}
				if err := stopA(); !errors.Is(err, context.Canceled) {
					t.Errorf("Run: %v", err)
				}
			})
		})
	}
}

// The pause grows with failures in a row. It is at least a half of its nominal
// length. After a good or a long term it is short again, and after a loss.
func TestBackoff(t *testing.T) {
	const least, most = time.Second, 5 * time.Second
	m := sqllock.NewMemory()
	fail := func(context.Context) error { return errBroken }
	tests := []struct {
		name string
		lead func(context.Context) error
		want time.Duration // at most, before the next term
	}{
		{"fails", fail, least},
		{"fails", fail, 2 * least},
		{"fails", fail, 4 * least},
		{"fails", fail, most},
		{"fails", fail, most},
		{"resigns", func(context.Context) error { return nil }, least},
		{"fails", fail, least},
		{"fails", fail, 2 * least},
		{"loses the lock, and fails", func(ctx context.Context) error { m.Lose(); <-ctx.Done(); return errBroken }, least},
		{"fails", fail, least},
		{"fails", fail, 2 * least},
		{"leads for long, and fails", func(context.Context) error { time.Sleep(most); return errBroken }, least},
		{"fails", fail, least},
	}
	synctest.Test(t, func(t *testing.T) {
		c := election.New(m, office, election.WithBackoff(least, most))
		ctx, cancel := context.WithCancel(t.Context())
		n := 0
		var ended time.Time
		err := c.Run(ctx, func(ctx context.Context) error {
			if n > 0 {
				before := tests[n-1]
				if pause := time.Since(ended); pause < before.want/2 || pause > before.want {
					t.Errorf("term %d (it %s) was followed by a pause of %v, want %v to %v", n, before.name, pause, before.want/2, before.want)
				}
			}
			if n == len(tests) {
				cancel()
				return nil
			}
			err := tests[n].lead(ctx)
			n++
			ended = time.Now()
			return err
		})
		if err != context.Canceled || n != len(tests) {
			t.Errorf("Run: %v after %d terms", err, n)
		}
	})
}
