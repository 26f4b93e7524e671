package sqllock_test

import (
	"context"
	"errors"
	"log/slog"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/latchkey-go/latchkey/internal/lockertest"
	"github.com/latchkey-go/latchkey/internal/pgtest"
	"github.com/latchkey-go/latchkey/sqllock"
)

// allLost waits until the work of every lock has been notified of the loss.
func allLost(t *testing.T, locks []*sqllock.Lock) {
	t.Helper()
	for _, lock := range locks {
		select {
		case <-lock.Context().Done():
		case <-time.After(30 * time.Second):
			t.Fatal("a holder was not notified of the loss of its lock")
		}
		if cause := context.Cause(lock.Context()); cause != sqllock.ErrLost {
			t.Fatalf("cause of the work's context: %v, want ErrLost", cause)
		}
		if err := lock.Err(); err != sqllock.ErrLost {
			t.Fatalf("Err: %v, want ErrLost", err)
		}
		if err := lock.Unlock(); err != sqllock.ErrLost {
			t.Fatalf("Unlock: %v, want ErrLost", err)
		}
	}
}

// lockSoon acquires key, which is free. A busy machine may exceed the bounds of a
// locker with a short lease, so it tries until it gets the key.
func lockSoon(t *testing.T, l sqllock.Locker, key sqllock.Key) (lock *sqllock.Lock) {
	t.Helper()
	unavailable := false // then an attempt may have got the key, in a response that was too late
	lockertest.Eventually(t, "a free key is granted", func() (ok bool) {
		var err error
		lock, err = l.TryLock(t.Context(), key)
		unavailable = unavailable || errors.Is(err, sqllock.ErrUnavailable)
		if err != nil && !errors.Is(err, sqllock.ErrUnavailable) && (!unavailable || !errors.Is(err, sqllock.ErrHeld)) {
			t.Fatalf("TryLock: %v", err)
		}
		return err == nil
	})
	return lock
}

// servesAgain waits until s grants locks again.
func servesAgain(t *testing.T, s sqllock.Locker, key sqllock.Key) {
	t.Helper()
	lockertest.Eventually(t, "the locker serves again", func() bool {
		lock, err := s.TryLock(t.Context(), key)
		if err != nil && !errors.Is(err, sqllock.ErrUnavailable) && !errors.Is(err, sqllock.ErrHeld) {
			t.Fatalf("TryLock: %v", err)
		}
		return err == nil && lock.Unlock() == nil
	})
}

func TestTerminatedBackend(t *testing.T) {
	eachDriver(t, terminateBackend)
}

// The same over TLS: the watch looks at the socket below it.
func TestTerminatedBackendTLS(t *testing.T) {
	eachCluster(t, func(t *testing.T, driver string, cluster *pgtest.Cluster) {
		dsn := pgtest.OverTLS(cluster.DSN(""))
		if number(t, open(t, driver, dsn), "SELECT ssl::int FROM pg_stat_ssl WHERE pid = pg_backend_pid()") != 1 {
			t.Fatal("the connection is not encrypted")
		}
		terminateBackend(t, driver, dsn)
	}, pgtest.WithTLS())
}

func terminateBackend(t *testing.T, driver, dsn string) {
	// The heartbeat is so slow that only the watch on the socket can notice.
	s := session(t, driver, dsn, sqllock.WithLease(time.Hour))
	observer := open(t, driver, dsn)
	for round := range 2 {
		locks := take(t, s, 0, 50)
		bound, cancel := locks[0].Bind(t.Context())
		ended := make(chan error, 1)
		locks[1].OnEnd(func(cause error) { ended <- cause })
		terminate(t, observer)
		allLost(t, locks)
		if <-bound.Done(); context.Cause(bound) != sqllock.ErrLost {
			t.Errorf("cause of a bound context: %v, want ErrLost", context.Cause(bound))
		}
		cancel()
		if cause := <-ended; cause != sqllock.ErrLost {
			t.Errorf("OnEnd: %v, want ErrLost", cause)
		}
		servesAgain(t, s, sqllock.ID(1))
		if got := s.Stats().Losses; got != uint64(round+1) {
			t.Errorf("%d losses counted, want %d", got, round+1)
		}
	}
}

// A server that is shut down ends the locks. Calls fail meanwhile, and neither
// their errors nor the log contain an address or an id. A Session and a PerTx
// serve again once the server does.
func TestDatabaseAway(t *testing.T) {
	eachCluster(t, func(t *testing.T, driver string, cluster *pgtest.Cluster) {
		dsn := cluster.DSN("")
		var log lockedBuffer
		debug := slog.New(slog.NewTextHandler(&log, &slog.HandlerOptions{Level: slog.LevelDebug}))
		s := session(t, driver, dsn, shortLease(), sqllock.WithLazyOpen(), sqllock.WithLogger(debug))
		perTx := sqllock.PerTx(open(t, driver, dsn))
		ofTx := mustLock(t, perTx, sqllock.ID(2))
		lock := lockSoon(t, s, sqllock.Namespace("export").Key("somebody"))
		if err := cluster.Stop(); err != nil {
			t.Fatal(err)
		}
		allLost(t, []*sqllock.Lock{lock})
		if err := ofTx.Unlock(); err != sqllock.ErrLost {
			t.Errorf("Unlock of a PerTx: %v, want ErrLost", err)
		}
		for _, l := range []sqllock.Locker{s, perTx} {
			_, err := l.TryLock(t.Context(), sqllock.ID(1))
			if !errors.Is(err, sqllock.ErrUnavailable) {
				t.Errorf("TryLock of a %T while the database is down: %v, want ErrUnavailable", l, err)
			}
			tellsNothing(t, err, dsn)
		}
		if got := s.Stats().Connections; got != 0 {
			t.Errorf("%d connections while the database is down", got)
		}
		if err := cluster.StartAgain(); err != nil {
			t.Fatal(err)
		}
		servesAgain(t, s, sqllock.ID(1))
		servesAgain(t, perTx, sqllock.ID(2))
		for _, said := range []string{"connection lost", "connected again"} {
			if !strings.Contains(log.String(), said) {
				t.Errorf("the log does not contain %q:\n%s", said, log.String())
			}
		}
		tellsNothing(t, errors.New(log.String()), dsn)
		for _, secret := range []string{"somebody", strconv.FormatInt(lock.Key().Int64(), 10)} {
			if strings.Contains(log.String(), secret) {
				t.Errorf("the log contains %q:\n%s", secret, log.String())
			}
		}
	})
}
