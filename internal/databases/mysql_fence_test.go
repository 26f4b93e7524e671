package databases

import (
	"strings"
	"testing"

	"github.com/latchkey-go/latchkey/internal/dialect"
	"github.com/latchkey-go/latchkey/internal/dialect/usertx"
	"github.com/latchkey-go/latchkey/internal/lockertest"
	"github.com/latchkey-go/latchkey/sqllock"
)

// newToken opens a session and returns a token of it.
func newToken(t *testing.T, o lockertest.Orders) dialect.Token {
	t.Helper()
	s := connect(t, o)
	defer s.Destroy()
	token, err := s.Token()
	if err != nil {
		t.Fatalf("Token: %v", err)
	}
	return token
}

// The fence rejects a holder whose token is older than one that has been
// fenced. The tables are created automatically.
func TestMySQLFence(t *testing.T) {
	t.Parallel()
	o := mariadb(t)
	db := open(t, o.Driver, o.DSN)
	execute(t, db, "CREATE TABLE work (who INT)")
	stale := mustLock(t, process(t, o), sqllock.ID(1))
	if err := fencedWork(t, db, stale, 1); err != nil {
		t.Fatalf("Fence: %v", err)
	}
	key := dialect.Key{ID: 1}
	at := func(token dialect.Token) (passed bool) {
		t.Helper()
		tx, err := db.Begin()
		if err != nil {
			t.Fatal(err)
		}
		passage, err := usertx.Fence(t.Context(), tx, key, token)
		if err != nil {
			t.Fatalf("Fence: %v", err)
		}
		passed = passage == usertx.Passed
		if passed {
			err = tx.Commit()
		} else {
			err = tx.Rollback()
		}
		if err != nil {
			t.Fatal(err)
		}
		return passed
	}
	later := newToken(t, o)
	earlier, lastEpoch, otherSystem := later, later, later
	earlier.Number--
	lastEpoch.Epoch--
	lastEpoch.Number++
	otherSystem.System++
	otherSystem.Number = 1
	for _, step := range []struct {
		name  string
		token dialect.Token
		want  bool
	}{
		{"later", later, true},
		{"the same", later, true},
		{"earlier", earlier, false},
		{"a later number of an earlier epoch", lastEpoch, false},
	} {
		if got := at(step.token); got != step.want {
			t.Errorf("%s: passed %t", step.name, got)
		}
	}
	if err := fencedWork(t, db, stale, 2); err != sqllock.ErrFenced {
		t.Errorf("Fence of the stale holder: %v, want ErrFenced", err)
	}
	if number(t, db, "SELECT count(*) FROM work WHERE who = 2") > 0 {
		t.Error("the stale holder's work is in the database")
	}
	if got := at(otherSystem); !got {
		t.Error("a token of another system is rejected")
	}
	execute(t, db, "DROP TABLE latchkey_fence")
	if err := fencedWork(t, db, stale, 3); err == nil || !strings.Contains(err.Error(), "FenceSchema(MySQL)") {
		t.Errorf("Fence without its table: %v", err)
	}
}

// passes reports whether the fence of key 1 accepts token, on a connection with
// options.
func passes(t *testing.T, dsn string, token dialect.Token) bool {
	t.Helper()
	tx, err := open(t, "mysql", dsn).Begin()
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = tx.Rollback() }()
	passage, err := usertx.Fence(t.Context(), tx, big(1)[0], token)
	if err != nil {
		t.Fatalf("Fence: %v", err)
	}
	if passage == usertx.Passed {
		if err := tx.Commit(); err != nil {
			t.Fatal(err)
		}
	}
	return passage == usertx.Passed
}

// A fence rejects stale tokens, whichever mode or checks the caller's
// connection has switched off.
func TestMySQLFenceInEveryMode(t *testing.T) {
	t.Parallel()
	for _, options := range []string{
		"", "?check_constraint_checks=0", "?sql_mode=%27%27", "?sql_mode=%27NO_UNSIGNED_SUBTRACTION%27", "?sql_mode=%27SIMULTANEOUS_ASSIGNMENT%27",
		"?sql_mode=%27TRADITIONAL%27", "?sql_mode=%27ORACLE%27", "?sql_mode=%27HIGH_NOT_PRECEDENCE%27", "?check_constraint_checks=0&sql_mode=%27%27",
	} {
		t.Run(options, func(t *testing.T) {
			t.Parallel()
			o := mariadb(t)
			earlier, later := newToken(t, o), newToken(t, o)
			for i, step := range []struct {
				token dialect.Token
				want  bool
			}{{earlier, true}, {earlier, true}, {later, true}, {earlier, false}, {earlier, false}, {later, true}} {
				if got := passes(t, o.DSN+options, step.token); got != step.want {
					t.Errorf("step %d: passed %t", i, got)
				}
			}
		})
	}
}

// After a failover to a server whose clock is behind, tokens are greater than
// those before.
func TestMySQLTokensAfterFailover(t *testing.T) {
	t.Parallel()
	o := mariadb(t)
	before := newToken(t, o)
	again := newToken(t, o)
	if before.Epoch != again.Epoch || !before.Before(again) || before.System != again.System {
		t.Errorf("on one server: %+v, then %+v", before, again)
	}
	db := open(t, o.Driver, o.DSN)
	// This is the state of the replica's table: another server issued the last
	// token, by a clock that is a day ahead. The last tokens have not been
	// replicated.
	execute(t, db, "UPDATE latchkey_tokens SET server_hash = server_hash + 1")
	ahead := again
	ahead.Number += 24 * 3600 * 1e6
	after := newToken(t, o)
	if !ahead.Before(after) || after.System != before.System {
		t.Errorf("after a failover: %+v, and before %+v", after, ahead)
	}
	if !passes(t, o.DSN, ahead) || !passes(t, o.DSN, after) || passes(t, o.DSN, ahead) {
		t.Error("the fence orders a token from before the failover after a later one")
	}
	if next := newToken(t, o); next.Epoch != after.Epoch {
		t.Errorf("the epoch rises although the server is the same: %+v, then %+v", after, next)
	}
}
