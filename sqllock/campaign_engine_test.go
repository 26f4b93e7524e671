package sqllock

import (
	"context"
	"errors"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/latchkey-go/latchkey/internal/dialect"
)

// stands runs c until the test ends.
func stands(t *testing.T, c *Campaign, lead func(context.Context) error) (stop func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() {
		defer close(done)
		if err := c.Run(ctx, lead); err != context.Canceled {
			t.Errorf("Run: %v", err)
		}
	}()
	synctest.Wait()
	return func() {
		cancel()
		<-done
	}
}

// A machine that slept past the lease: no timer has fired, and yet the process does not
// call itself leader.
func TestCampaignStatusAfterSuspend(t *testing.T) {
	var asleep atomic.Int64
	simulate(t, func(t *testing.T, s *Session, _ *fakeServer) {
		c := NewCampaign(s, ID(1))
		causes := make(chan error, 2)
		stop := stands(t, c, func(ctx context.Context) error {
			<-ctx.Done()
			causes <- context.Cause(ctx)
			return nil
		})
		if s := c.Status(); !s.Leader || s.Token == "" {
			t.Fatalf("status: %+v", s)
		}
		asleep.Add(int64(s.options.trust()))
		if s := c.Status(); s.Leader || s.Token != "" || !s.Since.IsZero() || s.Err != ErrLost {
			t.Errorf("status after a suspend past the lease: %+v", s)
		}
		if cause := <-causes; cause != ErrLost {
			t.Errorf("cause: %v, want ErrLost", cause)
		}
		time.Sleep(ticks)
		if s := c.Status(); !s.Leader || s.Terms != 2 {
			t.Errorf("status later: %+v", s)
		}
		stop()
	}, suspended(&asleep))
}

// Two terms of one process never overlap, however long a leader that has lost the
// lock goes on, and whoever leads meanwhile.
func TestCampaignTermsDoNotOverlap(t *testing.T) {
	simulate(t, func(t *testing.T, s *Session, server *fakeServer) {
		c := NewCampaign(s, ID(1))
		var inside, terms atomic.Int32
		slow := make(chan struct{})
		stop := stands(t, c, func(ctx context.Context) error {
			if inside.Add(1) > 1 {
				t.Error("two terms of one process overlap")
			}
			defer inside.Add(-1)
			terms.Add(1)
			<-ctx.Done()
			<-slow
			return nil
		})
		server.session(0).Destroy()
		time.Sleep(time.Minute)
		if s := c.Status(); s.Leader || s.Err != ErrLost || terms.Load() != 1 {
			t.Errorf("while a leader that has lost goes on: %+v, %d terms", s, terms.Load())
		}
		if n := server.held(); n != 0 { // nor does this process keep others from leading
			t.Errorf("%d locks in the database", n)
		}
		close(slow)
		time.Sleep(ticks)
		if s := c.Status(); !s.Leader || s.Terms != 2 {
			t.Errorf("after it has returned: %+v", s)
		}
		stop()
	})
}

// How a leader answers its loss is no failure of its own: the pause does not grow.
func TestCampaignLosses(t *testing.T) {
	fails := func(context.Context) error { return errors.New("rolled back") }
	answers := []func(ctx context.Context) error{
		func(context.Context) error { return nil },
		func(ctx context.Context) error { return ctx.Err() },
		func(ctx context.Context) error { return context.Cause(ctx) },
		fails, fails, fails,
	}
	simulate(t, func(t *testing.T, s *Session, server *fakeServer) {
		c := NewCampaign(s, ID(1), WithBackoff(ticks-time.Second, time.Hour))
		var terms atomic.Int32
		stop := stands(t, c, func(ctx context.Context) error {
			answer := answers[int(terms.Add(1)-1)%len(answers)]
			<-ctx.Done()
			return answer(ctx)
		})
		for i := range answers {
			server.mu.Lock()
			now := server.sessions[len(server.sessions)-1]
			server.mu.Unlock()
			now.Destroy()
			for c.Status().Leader { // the next heartbeat will tell
				time.Sleep(10 * time.Millisecond)
			}
			synctest.Wait()
			if err := c.Status().Err; !errors.Is(err, ErrLost) {
				t.Errorf("term %d: Err of the status: %v, want ErrLost", i, err)
			} else if i >= 3 != strings.Contains(err.Error(), "rolled back") {
				t.Errorf("term %d: Err of the status: %v", i, err)
			}
			time.Sleep(ticks)
			if s := c.Status(); !s.Leader || s.Terms != i+2 {
				t.Fatalf("after loss %d: %+v", i+1, s)
			}
		}
		stop()
	})
}

// The Session is closed under a leader: it is told, and Run returns.
func TestCampaignSessionCloses(t *testing.T) {
	simulate(t, func(t *testing.T, s *Session, _ *fakeServer) {
		c := NewCampaign(s, ID(1))
		var cause error
		result := make(chan error, 1)
		go func() {
			result <- c.Run(t.Context(), func(ctx context.Context) error {
				<-ctx.Done()
				cause = context.Cause(ctx)
				return ctx.Err()
			})
		}()
		synctest.Wait()
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
		if err := <-result; err != ErrClosed || cause != ErrClosed {
			t.Errorf("Run: %v, cause: %v; want ErrClosed for both", err, cause)
		}
	})
}

// A leader leads although its token is not to be had; a lock that is lost while the
// token is drawn begins no term.
func TestCampaignToken(t *testing.T) {
	refused := &dialect.Failure{Kind: dialect.Statement, Reason: "no"}
	simulate(t, func(t *testing.T, s *Session, server *fakeServer) {
		server.session(0).tokenHook(func() error { return refused })
		c := NewCampaign(s, ID(1))
		stop := stands(t, c, func(ctx context.Context) error { <-ctx.Done(); return nil })
		if s := c.Status(); !s.Leader || s.Token != "" {
			t.Errorf("the server refuses a token: %+v", s)
		}
		stop()
	})
	simulate(t, func(t *testing.T, s *Session, server *fakeServer) {
		server.session(0).tokenHook(func() error { return errGone })
		c := NewCampaign(s, ID(1))
		stop := stands(t, c, func(ctx context.Context) error {
			if err := ctx.Err(); err != nil {
				t.Errorf("a term begins without the lock: %v", err)
			}
			<-ctx.Done()
			return nil
		})
		if s := c.Status(); s.Leader || s.Terms != 0 || s.Err != ErrLost {
			t.Errorf("lost while the token is drawn: %+v", s)
		}
		time.Sleep(ticks)
		if s := c.Status(); !s.Leader || s.Terms != 1 || s.Token == "" {
			t.Errorf("later: %+v", s)
		}
		stop()
	})
}
