package sqllock_test

import (
	"context"
	"errors"
	"fmt"
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
	lockertest.Eventually(t, "a free key is granted", func() (ok bool) {
		var err error
		lock, err = l.TryLock(t.Context(), key)
		if err != nil && !errors.Is(err, sqllock.ErrUnavailable) {
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

func TestLongServerRestarts(t *testing.T) {
	eachCluster(t, func(t *testing.T, driver string, cluster *pgtest.Cluster) {
		s := session(t, driver, cluster.DSN(""), shortLease())
		for _, restart := range []struct {
			name string
			do   func() error
		}{
			{"fast", func() error { return cluster.Restart(false) }},
			{"immediate", func() error { return cluster.Restart(true) }},
			{"kill -9", func() error { return errors.Join(cluster.Kill(), cluster.StartAgain()) }},
			{"kill -9 of the backend", func() error {
				return cluster.KillBackend(number(t, open(t, driver, cluster.DSN("")), sessionPID))
			}},
		} {
			locks := take(t, s, 0, 10)
			if err := restart.do(); err != nil {
				t.Fatalf("%s: %v", restart.name, err)
			}
			allLost(t, locks)
			servesAgain(t, s, sqllock.ID(1))
		}
	})
}

// A server that is shut down ends the locks. Calls fail meanwhile, and neither
// their errors nor the log contain an address or an id. A Session and a PerTx
// serve again once the server does.
func TestDatabaseAway(t *testing.T) {
	eachCluster(t, func(t *testing.T, driver string, cluster *pgtest.Cluster) {
		dsn := cluster.DSN("")
		var log lockedBuffer
		debug := slog.New(slog.NewTextHandler(&log, &slog.HandlerOptions{Level: slog.LevelDebug}))
		s := session(t, driver, dsn, shortLease(), sqllock.WithLogger(debug))
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

// A holder whose server is silent for the lease gives its locks up before the
// server can have freed them. Other callers get them after the lease.
func TestLongServerProcessFrozen(t *testing.T) {
	eachCluster(t, func(t *testing.T, driver string, cluster *pgtest.Cluster) {
		s := session(t, driver, cluster.DSN(""), shortLease())
		rival := session(t, driver, cluster.DSN(""))
		observer := open(t, driver, cluster.DSN(""))
		locks := take(t, s, 0, 3)
		pid := number(t, observer, `SELECT pid FROM pg_locks WHERE locktype = 'advisory' LIMIT 1`)
		if err := cluster.FreezeBackend(pid); err != nil {
			t.Fatal(err)
		}
		allLost(t, locks)
		// The server process still holds them: a frozen backend frees no lock.
		if _, err := rival.TryLock(t.Context(), sqllock.ID(0)); !errors.Is(err, sqllock.ErrHeld) {
			t.Errorf("TryLock elsewhere: %v, want ErrHeld", err)
		}
		servesAgain(t, s, sqllock.ID(100)) // on another connection
		if err := cluster.ThawBackend(pid); err != nil {
			t.Fatal(err)
		}
		servesAgain(t, rival, sqllock.ID(0))
	})
}

func TestServerLockTableFull(t *testing.T) {
	eachCluster(t, func(t *testing.T, driver string, cluster *pgtest.Cluster) {
		s := session(t, driver, cluster.DSN(""), sqllock.WithMaxHeld(100_000), sqllock.WithMaxConns(1))
		observer := open(t, driver, cluster.DSN(""))
		first := take(t, s, 0, 10)
		hog := connection(t, observer)
		for i := 0; ; i++ { // until the server's lock table is full
			if _, err := hog.ExecContext(t.Context(), fmt.Sprintf(
				"SELECT pg_advisory_lock(g) FROM generate_series(%d, %d) g", 1_000_000+100*i, 1_000_099+100*i)); err != nil {
				break
			}
		}
		var full bool
		for i := range 200 {
			lock, err := s.TryLock(t.Context(), sqllock.ID(int64(100+i)))
			if err == nil {
				first = append(first, lock)
				continue
			}
			if !errors.Is(err, sqllock.ErrCapacity) {
				t.Fatalf("TryLock with the server's lock table full: %v, want ErrCapacity", err)
			}
			full = true
		}
		if !full {
			t.Fatal("the server's lock table is not full: the test shows nothing")
		}
		for _, lock := range first {
			if err := lock.Err(); err != nil {
				t.Errorf("Err of a lock held while the table is full: %v", err)
			}
		}
		if _, err := hog.ExecContext(t.Context(), "SELECT pg_advisory_unlock_all()"); err != nil {
			t.Fatal(err)
		}
		lockertest.Eventually(t, "the Session sees that there is room", func() bool {
			lock, err := s.TryLock(t.Context(), sqllock.ID(9999))
			return err == nil && lock.Unlock() == nil
		})
		for _, lock := range first {
			unlock(t, lock)
		}
		if got := s.Stats().Losses; got != 0 {
			t.Errorf("%d losses", got)
		}
		if got := advisoryLocks(t, observer); got != 0 {
			t.Errorf("%d locks remain", got)
		}
	}, pgtest.WithSettings(map[string]string{"max_locks_per_transaction": "10", "max_connections": "20"}))
}
