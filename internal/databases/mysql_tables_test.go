package databases

import (
	"strings"
	"testing"

	"github.com/latchkey-go/latchkey/internal/dialect"
	"github.com/latchkey-go/latchkey/internal/dialect/usertx"
	"github.com/latchkey-go/latchkey/internal/lockertest"
	"github.com/latchkey-go/latchkey/internal/mariadbtest"
	"github.com/latchkey-go/latchkey/sqllock"
)

// drawn is a token of a session for itself.
func drawn(t *testing.T, o lockertest.Orders) dialect.Token {
	t.Helper()
	s := connect(t, o)
	defer s.Destroy()
	token, err := s.Token()
	if err != nil {
		t.Fatalf("Token: %v", err)
	}
	return token
}

// A holder whose token is older than one that was fenced is refused. The tables make
// themselves.
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
	later := drawn(t, o)
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
		t.Error("a token of another system is refused")
	}
	execute(t, db, "DROP TABLE latchkey_fence")
	if err := fencedWork(t, db, stale, 3); err == nil || !strings.Contains(err.Error(), "FenceSchema(MySQL)") {
		t.Errorf("Fence without its table: %v", err)
	}
}

// Schema's statements make what a session makes, and may be run again.
func TestMySQLSchema(t *testing.T) {
	t.Parallel()
	o := mariadb(t)
	db := open(t, o.Driver, o.DSN)
	for range 2 {
		create(t, db, sqllock.Schema(sqllock.MySQL), sqllock.FenceSchema(sqllock.MySQL))
	}
	if n := number(t, db, "SELECT count(*) FROM latchkey_tokens"); n != 1 {
		t.Errorf("%d rows of tokens, want 1", n)
	}
	execute(t, db, "CREATE TABLE work (who INT)")
	if err := fencedWork(t, db, mustLock(t, process(t, o), sqllock.ID(1)), 1); err != nil {
		t.Errorf("Fence: %v", err)
	}
}

// A user who may not create tables holds locks all the same, and is told what is missing
// for the rest; its locks outlive the refusal.
func TestMySQLWithoutRightToCreate(t *testing.T) {
	t.Parallel()
	server := mariadbtest.New(t)
	o := lockertest.Orders{Driver: "mysql", DSN: server.Database(t)}
	db := open(t, o.Driver, o.DSN+"?multiStatements=true")
	name := o.DSN[strings.LastIndexByte(o.DSN, '/')+1:]
	execute(t, db, "CREATE USER clerk@127.0.0.1; GRANT SELECT, INSERT, UPDATE, DELETE ON "+name+".* TO clerk@127.0.0.1")
	s := process(t, lockertest.Orders{Driver: "mysql", DSN: server.DSNOf("clerk", name)})
	lock := mustLock(t, s, sqllock.ID(1))
	keyed := sqllock.Namespace("payouts").Keyed([]byte("a secret of 32 bytes, or nearly.")).Key("7")
	if _, err := s.TryLock(t.Context(), keyed); err == nil || !strings.Contains(err.Error(), "Schema(MySQL)") {
		t.Errorf("TryLock of a key with a secret: %v", err)
	}
	if err := fencedWork(t, db, lock, 1); err == nil || !strings.Contains(err.Error(), "FenceSchema(MySQL)") {
		t.Errorf("Fence: %v", err)
	}
	if err := lock.Err(); err != nil {
		t.Errorf("the lock: %v", err)
	}
	create(t, db, sqllock.Schema(sqllock.MySQL), sqllock.FenceSchema(sqllock.MySQL))
	execute(t, db, "CREATE TABLE work (who INT)")
	lockertest.Eventually(t, "the key with a secret is to be had", func() bool {
		other, err := s.TryLock(t.Context(), keyed)
		return err == nil && other.Unlock() == nil
	})
	if err := fencedWork(t, db, lock, 1); err != nil {
		t.Errorf("Fence: %v", err)
	}
}

// What a dead session checked is nobody's, and its rows go.
func TestMySQLDeadSecretChecks(t *testing.T) {
	t.Parallel()
	o := mariadb(t)
	db := open(t, o.Driver, o.DSN)
	dead, s := connect(t, o), connect(t, o)
	mine, theirs := dialect.SecretCheckOf("payouts", 1), dialect.SecretCheckOf("payouts", 2)
	if _, err := dead.UseSecret(theirs); err != nil {
		t.Fatal(err)
	}
	dead.Destroy()
	lockertest.Eventually(t, "a dead session's check is not in the way", func() bool {
		conflict, err := s.UseSecret(mine)
		if err != nil {
			t.Fatal(err)
		}
		return !conflict
	})
	if n := number(t, db, "SELECT count(*) FROM latchkey_secret_checks"); n != 1 {
		t.Errorf("%d rows of checks, want 1", n)
	}
	if err := s.DropSecret(mine); err != nil {
		t.Fatal(err)
	}
	if n := number(t, db, "SELECT count(*) FROM latchkey_secret_checks"); n != 0 {
		t.Errorf("%d rows of checks, want none", n)
	}
}
