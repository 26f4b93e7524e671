package election_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/latchkey-go/latchkey/internal/dbtest"
	"github.com/latchkey-go/latchkey/internal/lockertest"
	"github.com/latchkey-go/latchkey/internal/pgtest"
	"github.com/latchkey-go/latchkey/sqllock"
	"github.com/latchkey-go/latchkey/sqllock/election"
)

// When the lock is lost, the process does not call itself leader, although the
// term has not ended yet. Two terms of one process never overlap, however long a
// leader goes on. Meanwhile other processes may lead.
func TestLoss(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := sqllock.NewMemory()
		c := election.New(m, office)
		causes, slow := make(chan error, 2), make(chan struct{})
		campaign(t, c, func(ctx context.Context) error {
			<-ctx.Done()
			causes <- context.Cause(ctx)
			<-slow
			return nil
		})
		synctest.Wait()
		wantLeader(t, 0, c)
		lost := func() {
			if s := c.Status(); s.Leader || s.Token != "" || !s.Since.IsZero() || s.Err != sqllock.ErrLost || s.Terms != 1 {
				t.Errorf("status after the loss: %+v", s)
			}
		}
		dbtest.Lock(t, m, sqllock.ID(1)).OnEnd(func(error) { lost() })
		m.Lose()
		if cause := <-causes; cause != sqllock.ErrLost {
			t.Errorf("cause: %v, want ErrLost", cause)
		}
		time.Sleep(time.Minute)
		lost()
		dbtest.Unlock(t, dbtest.Lock(t, m, office))
		close(slow)
		time.Sleep(time.Second)
		if s := c.Status(); !s.Leader || s.Terms != 2 {
			t.Errorf("status later: %+v", s)
		}
	})
}

// A loss that shows only when the lock is released ends the term like others.
func TestLossAtRelease(t *testing.T) {
	t.Parallel()
	locks := sqllock.PerTx(dbtest.Open(t, "pgx", pgtest.Database(t)))
	c := election.New(locks, office, election.WithBackoff(time.Hour, time.Hour)) // no second term
	campaign(t, c, func(ctx context.Context) error {
		tx, _ := sqllock.TxFromContext(ctx)
		_, err := tx.ExecContext(ctx, "SELECT pg_terminate_backend(pg_backend_pid())")
		return err
	})
	lockertest.Eventually(t, "the term is over", func() bool { return c.Status().Err != nil })
	if err := c.Status().Err; !errors.Is(err, sqllock.ErrLost) || err == sqllock.ErrLost {
		t.Errorf("Err of the status: %v, want ErrLost and the leader's error", err)
	}
}

// A term does not begin without its token while the database draws none.
func TestTokenUnavailable(t *testing.T) {
	cluster := pgtest.New(t)
	s := dbtest.Session(t, "pgx", cluster.DSN(""), sqllock.WithLease(20*time.Second), sqllock.WithLazyOpen()) // with its bounds of a second
	lockertest.Eventually(t, "there is a connection", func() bool { return len(s.Connections()) == 1 })
	pid := int(s.Connections()[0].PID)
	grants := 0
	c := election.New(lockerFunc(func(ctx context.Context, key sqllock.Key) (*sqllock.Lock, error) {
		lock, err := s.Lock(ctx, key)
		if grants++; grants == 1 && err == nil {
			err = cluster.FreezeBackend(pid)
		}
		return lock, err
	}), office)
	tokens := make(chan string, 1)
	campaign(t, c, func(ctx context.Context) error {
		select {
		case tokens <- c.Status().Token:
		default:
		}
		return untilEnd(ctx)
	})
	lockertest.Eventually(t, "the status says why there is no term", func() bool {
		return errors.Is(c.Status().Err, sqllock.ErrUnavailable) || len(tokens) > 0
	})
	if err := cluster.ThawBackend(pid); err != nil {
		t.Fatal(err)
	}
	if token := <-tokens; token == "" {
		t.Error("a term began without its token")
	}
}
