package leasetable

import (
	"context"
	"database/sql"
	"testing"
	"time"

	"github.com/latchkey-go/latchkey/internal/dialect"
	"github.com/latchkey-go/latchkey/internal/pgtest"
)

// A check whose connection breaks while its statement is under way may be in
// use after Held, which waits for that statement. To ask again gives the right
// result, and the check ends with the session.
func TestSecretCheckUnderWay(t *testing.T) {
	t.Parallel()
	db, open := leaseTableOf(t, "postgres", pgtest.Database(t)) // which does not ask the server to interrupt it
	s, other := open(), open()
	right, wrong := dialect.SecretCheck{Class: 1, Fingerprint: 1}, dialect.SecretCheck{Class: 1, Fingerprint: 2}
	tx, err := db.BeginTx(context.Background(), nil)
	must(t, err)
	defer func() { _ = tx.Rollback() }()
	execute(t, tx, "SELECT FROM latchkey_sessions FOR UPDATE")
	failed := make(chan error, 1)
	go func() {
		_, err := s.UseSecret(right)
		failed <- err
	}()
	untilWaiting(t, db, 1)
	s.socket.Close()
	if err := <-failed; err == nil || isGone(err) {
		t.Fatalf("UseSecret whose connection broke: %v, want a failure that the session survives", err)
	}
	reconciled := make(chan error, 1)
	go func() {
		_, err := s.Held()
		reconciled <- err
	}()
	untilWaiting(t, db, 2) // the check's statement goes first
	must(t, tx.Commit())
	if err := <-reconciled; err != nil {
		t.Fatalf("Held: %v", err)
	}
	for _, step := range []struct {
		name     string
		s        *session
		check    dialect.SecretCheck
		conflict bool
	}{
		{"asked again", s, right, false},
		{"another secret", other, wrong, true},
		{"the same of another session", other, right, false},
	} {
		if conflict, err := step.s.UseSecret(step.check); err != nil || conflict != step.conflict {
			t.Errorf("%s: conflict %t, %v", step.name, conflict, err)
		}
	}
	must(t, other.DropSecret(right))
	s.Destroy()
	if conflict, err := other.UseSecret(wrong); err != nil || conflict {
		t.Errorf("another secret, after the session's end: conflict %t, %v", conflict, err)
	}
}

// untilWaiting waits until so many statements of db's database wait for a lock.
func untilWaiting(t *testing.T, db *sql.DB, want int) {
	t.Helper()
	const waiting = "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'"
	for deadline := time.Now().Add(30 * time.Second); ; time.Sleep(time.Millisecond) {
		var n int
		must(t, db.QueryRow(waiting).Scan(&n))
		if n == want {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("%d statements wait for a lock, want %d", n, want)
		}
	}
}
