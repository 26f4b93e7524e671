package postgres

import (
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/latchkey-go/latchkey/internal/dialect"
	"github.com/latchkey-go/latchkey/internal/pgtest"
)

// uses reports whether s uses c after UseSecret.
func uses(t *testing.T, s *session, c dialect.SecretCheck) bool {
	t.Helper()
	conflict, err := s.UseSecret(c)
	if err != nil {
		t.Fatalf("UseSecret: %v", err)
	}
	return !conflict
}

func mustDrop(t *testing.T, s *session, c dialect.SecretCheck) {
	t.Helper()
	execute(t, s.conn, "SELECT pg_advisory_unlock_shared($1::int, $2::int)", c.Class, c.Fingerprint)
}

// checksHeld returns how many times s holds the lock of a check.
func checksHeld(t *testing.T, s dialect.Session) int {
	t.Helper()
	keys, err := s.Held()
	must(t, err)
	return len(slices.DeleteFunc(keys, func(k dialect.Key) bool { return !k.IsShared() }))
}

// A session with another secret does not disturb a fleet that is there, however
// often it asks: sessions of the fleet that come meanwhile are never refused.
func TestLongSecretNewcomerDoesNotDisturb(t *testing.T) {
	for _, driver := range pgtest.Drivers() {
		t.Run(driver, func(t *testing.T) {
			t.Parallel()
			dsn := pgtest.Database(t)
			fleet, returning, newcomer := opened(t, driver, dsn), opened(t, driver, dsn), opened(t, driver, dsn)
			right, wrong := dialect.SecretCheckOf("payouts", 1), dialect.SecretCheckOf("payouts", 2)
			if !uses(t, fleet, right) {
				t.Fatal("the first session is refused")
			}
			done := make(chan struct{})
			var newcomers sync.WaitGroup
			newcomers.Go(func() {
				for {
					select {
					case <-done:
						return
					default:
					}
					if conflict, err := newcomer.UseSecret(wrong); err != nil || !conflict {
						t.Errorf("another secret: conflict %t, %v", conflict, err)
						return
					}
				}
			})
			for range 400 {
				if conflict, err := returning.UseSecret(right); err != nil || conflict {
					t.Errorf("the fleet's secret: conflict %t, %v", conflict, err)
				}
				mustDrop(t, returning, right)
			}
			close(done)
			newcomers.Wait()
		})
	}
}

// The smallest and the largest numbers are checks like others, with every way of
// a driver to send them.
func TestSecretChecksOfAllNumbers(t *testing.T) {
	dsn := pgtest.Database(t)
	for driver, dsn := range map[string]string{"pgx": dsn, "postgres": dsn, "pgx simple": dsn + "&default_query_exec_mode=simple_protocol", "pgx exec": dsn + "&default_query_exec_mode=exec"} {
		driver, _, _ := strings.Cut(driver, " ")
		one, other := opened(t, driver, dsn), opened(t, driver, dsn)
		numbers := []int32{-1 << 31, -1, 0, 1<<31 - 1}
		for i, class := range numbers {
			right := dialect.SecretCheck{Class: class, Fingerprint: numbers[len(numbers)-1-i]}
			wrong := dialect.SecretCheck{Class: class, Fingerprint: 7}
			if !uses(t, one, right) || uses(t, other, wrong) || !uses(t, other, right) {
				t.Errorf("%s: checks %v and %v", driver, right, wrong)
			}
			mustDrop(t, one, right)
			mustDrop(t, other, right)
		}
	}
}

// A check that an earlier call has left, whose response was lost, goes with the
// next call if another session uses the namespace by then.
func TestSecretCheckLeftByAnError(t *testing.T) {
	t.Parallel()
	dsn := pgtest.Database(t)
	right, wrong := dialect.SecretCheck{Class: 1, Fingerprint: 1}, dialect.SecretCheck{Class: 1, Fingerprint: 2}
	fleet, s := opened(t, "pgx", dsn), opened(t, "pgx", dsn)
	if !uses(t, fleet, right) {
		t.Fatal("the first session is refused")
	}
	// The statement between the two looks at a moment at which there was no fleet.
	execute(t, s.conn, "SELECT pg_advisory_lock_shared($1::int, $2::int)", wrong.Class, wrong.Fingerprint)
	if uses(t, opened(t, "pgx", dsn), right) {
		t.Error("a newcomer does not see what was left")
	}
	if uses(t, s, wrong) {
		t.Error("two sessions use one namespace with different secrets")
	}
	if n := checksHeld(t, s); n != 0 {
		t.Errorf("%d checks are left", n)
	}
	if !uses(t, opened(t, "pgx", dsn), right) {
		t.Error("a newcomer of the fleet is refused")
	}
}
