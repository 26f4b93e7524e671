package postgres

import (
	"database/sql"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/latchkey-go/latchkey/internal/dialect"
	"github.com/latchkey-go/latchkey/internal/pgtest"
)

// opened is a session on a database.
func opened(t *testing.T, driver, dsn string) dialect.Session {
	t.Helper()
	db, err := sql.Open(driver, dsn)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = db.Close() })
	s, err := Dialect{}.Open(t.Context(), db, dialect.Settings{Lease: time.Hour, StatementTimeout: time.Minute, Proof: time.Minute})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Destroy)
	return s
}

// Of two sessions with different secrets that check at the same moment, never do
// both get the check.
func TestSecretChecksRace(t *testing.T) {
	for _, driver := range pgtest.Drivers() {
		t.Run(driver, func(t *testing.T) {
			t.Parallel()
			dsn := pgtest.Database(t)
			one, other := opened(t, driver, dsn), opened(t, driver, dsn)
			both, none := 0, 0
			const rounds = 400
			for round := range rounds {
				var (
					got   [2]bool
					ready sync.WaitGroup
					ended sync.WaitGroup
				)
				ready.Add(2)
				for i, s := range []dialect.Session{one, other} {
					check := dialect.SecretCheckOf(fmt.Sprint("namespace-", round), uint32(i+1))
					ended.Go(func() {
						ready.Done()
						ready.Wait()
						conflicts, err := s.CheckSecrets([]dialect.SecretCheck{check}, nil)
						if err != nil {
							t.Errorf("CheckSecrets: %v", err)
							return
						}
						got[i] = !conflicts[0]
					})
				}
				ended.Wait()
				switch {
				case got[0] && got[1]:
					both++
				case !got[0] && !got[1]:
					none++
				}
			}
			if both > 0 {
				t.Errorf("%d of %d times both got the check", both, rounds)
			}
			t.Logf("%d rounds: both were refused in %d, one was in the others", rounds, none)
		})
	}
}

// A check is had until it is dropped or the session ends, once however often it
// was asked for, and in no way by who was refused.
func TestSecretCheck(t *testing.T) {
	for _, driver := range pgtest.Drivers() {
		t.Run(driver, func(t *testing.T) {
			t.Parallel()
			dsn := pgtest.Database(t)
			one, same, other := opened(t, driver, dsn), opened(t, driver, dsn), opened(t, driver, dsn)
			right, wrong, apart := dialect.SecretCheckOf("payouts", 1), dialect.SecretCheckOf("payouts", 1<<32-1), dialect.SecretCheckOf("mail", 7)
			ask := func(s dialect.Session, want bool, wanted dialect.SecretCheck, dropped ...dialect.SecretCheck) {
				t.Helper()
				conflicts, err := s.CheckSecrets([]dialect.SecretCheck{wanted}, dropped)
				if err != nil {
					t.Fatal(err)
				}
				if conflicts[0] == want {
					t.Errorf("check %v: conflicts %t", wanted, conflicts[0])
				}
			}
			ask(one, true, right)
			ask(same, true, right)
			ask(other, false, wrong)
			ask(other, true, apart)
			if keys, err := one.Held(); err != nil || slices.ContainsFunc(keys, func(k dialect.Key) bool { return !k.IsShared() }) {
				t.Errorf("a check is among the keys that are held exclusively: %v, %v", keys, err)
			}
			ask(one, true, apart, right)
			ask(other, false, wrong)
			ask(same, true, apart, right)
			ask(other, true, wrong)
			ask(one, false, right)
			other.Destroy()
			for deadline := time.Now().Add(10 * time.Second); ; time.Sleep(time.Millisecond) {
				conflicts, err := one.CheckSecrets([]dialect.SecretCheck{right}, nil)
				if err != nil {
					t.Fatal(err)
				}
				if !conflicts[0] {
					break
				}
				if time.Now().After(deadline) {
					t.Fatal("a check outlives its session")
				}
			}
		})
	}
}

// A statement that takes checks may fail when some are taken. None of them stays.
func TestSecretChecksThatDoNotFit(t *testing.T) {
	for _, driver := range pgtest.Drivers() {
		t.Run(driver, func(t *testing.T) {
			t.Parallel()
			cluster := pgtest.New(t, pgtest.WithSettings(map[string]string{"max_locks_per_transaction": "10", "max_connections": "20"}))
			s := opened(t, driver, cluster.DSN(""))
			const tooMany = 20_000
			checks := make([]dialect.SecretCheck, tooMany)
			for i := range checks {
				checks[i] = dialect.SecretCheck{Class: int32(i), Fingerprint: 1}
			}
			if _, err := s.CheckSecrets(checks, nil); !dialect.Survives(err) {
				t.Fatalf("CheckSecrets: %v, want an error that the session survives", err)
			}
			if keys, err := s.Held(); err != nil || len(keys) > 0 {
				t.Errorf("the session still holds %d locks, %v", len(keys), err)
			}
		})
	}
}
