package sqllock_test

import (
	"context"
	"errors"
	"log/slog"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/latchkey-go/latchkey/internal/lockertest"
	"github.com/latchkey-go/latchkey/sqllock"
)

const payouts = sqllock.Namespace("payouts")

// Two fleets with different secrets make different keys of one name. The second
// one is rejected, and the first is not disturbed.
func TestAnotherSecret(t *testing.T) {
	eachDriver(t, func(t *testing.T, driver, dsn string) {
		right, wrong := payouts.Keyed([]byte("right")), payouts.Keyed([]byte("wrong"))
		first, second := session(t, driver, dsn), session(t, driver, dsn)
		var log lockedBuffer
		newcomer := session(t, driver, dsn, sqllock.WithLogger(slog.New(slog.NewTextHandler(&log, nil))))

		lock, err := first.TryLock(t.Context(), right.Key("ann"))
		if err != nil {
			t.Fatal(err)
		}
		if _, err := second.TryLock(t.Context(), right.Key("ann")); !errors.Is(err, sqllock.ErrHeld) {
			t.Errorf("the same secret: %v", err)
		}
		for range 3 { // the second and third time it is known already
			_, err = newcomer.TryLock(t.Context(), wrong.Key("ann"))
			if !errors.Is(err, sqllock.ErrNotExclusive) || !strings.Contains(err.Error(), `"payouts"`) {
				t.Fatalf("another secret: %v", err)
			}
			_, err = newcomer.TryAny(t.Context(), wrong.SlotKey("ann", 1), wrong.SlotKey("ann", 2))
			if !errors.Is(err, sqllock.ErrNotExclusive) {
				t.Fatalf("another secret, one of several: %v", err)
			}
		}
		if _, err := first.TryLock(t.Context(), wrong.Key("ben")); !errors.Is(err, sqllock.ErrNotExclusive) {
			t.Errorf("another secret in the process of the first: %v", err)
		}
		lockertest.Eventually(t, "the log has an error", func() bool { return log.count("level=ERROR") > 0 })
		if log.count("level=ERROR") != 1 || log.count("wrong") != 0 {
			t.Errorf("want one error in the log, without the secret: %s", log.String())
		}
		for _, key := range []sqllock.Key{payouts.Key("ann"), sqllock.Namespace("mail").Keyed([]byte("wrong")).Key("ann")} {
			other, err := newcomer.TryLock(t.Context(), key)
			if err != nil {
				t.Fatalf("a key of another namespace: %v", err)
			}
			if err := other.Unlock(); err != nil {
				t.Error(err)
			}
		}
		if err := lock.Unlock(); err != nil {
			t.Error(err)
		}
		if _, err := newcomer.TryLock(t.Context(), wrong.Key("ann")); !errors.Is(err, sqllock.ErrNotExclusive) {
			t.Errorf("another secret, while no key is held: %v", err)
		}
		if err := errors.Join(first.Close(), second.Close()); err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
		defer cancel()
		lock, err = newcomer.Lock(ctx, wrong.Key("ann"))
		if err != nil {
			t.Fatalf("after the others have closed: %v", err)
		}
		if err := lock.Unlock(); err != nil {
			t.Error(err)
		}
	})
}

// Two Sessions with different secrets begin at the same moment. At most one of
// them gets a key.
func TestTwoSecretsAtOnce(t *testing.T) {
	eachDriver(t, func(t *testing.T, driver, dsn string) {
		grants := 0
		for round := range 10 {
			var (
				holders atomic.Int32
				both    sync.WaitGroup
				all     []*sqllock.Session
				begin   = make(chan struct{})
			)
			for _, secret := range []string{"one", "other"} {
				s := session(t, driver, dsn)
				all = append(all, s)
				key := payouts.Keyed([]byte(secret)).Key(strconv.Itoa(round)) // the server may still be closing the round before
				both.Go(func() {
					<-begin
					if _, err := s.TryLock(context.Background(), key); err == nil {
						holders.Add(1)
					} else if !errors.Is(err, sqllock.ErrNotExclusive) {
						t.Errorf("TryLock: %v", err)
					}
				})
			}
			close(begin)
			both.Wait()
			if holders.Load() > 1 {
				t.Fatal("both fleets hold the key of one name")
			}
			grants += int(holders.Load())
			for _, s := range all {
				if err := s.Close(); err != nil {
					t.Fatal(err)
				}
			}
		}
		t.Logf("in %d of 10 rounds one of the two got the key, in the others none did", grants)
	})
}
