package databases

import (
	"context"
	"database/sql"
	"strconv"
	"testing"
	"time"

	"github.com/latchkey-go/latchkey/internal/dialect"
	"github.com/latchkey-go/latchkey/internal/dialect/usertx"
	"github.com/latchkey-go/latchkey/internal/lockertest"
	"github.com/latchkey-go/latchkey/internal/pgtest"
	"github.com/latchkey-go/latchkey/sqllock"
)

// withWork makes the tables of the fence, and one that the work writes to.
func withWork(t *testing.T, o lockertest.Orders, db *sql.DB) {
	t.Helper()
	create(t, db, sqllock.FenceSchema(dialectOf(o)))
	execute(t, db, "CREATE TABLE work (who INTEGER)")
}

// fencedWork commits whatever the fence has returned, as a careless caller
// would.
func fencedWork(t *testing.T, db *sql.DB, lock *sqllock.Lock, who int) error {
	t.Helper()
	tx, err := db.BeginTx(context.Background(), nil)
	must(t, err)
	fenceErr := sqllock.Fence(context.Background(), tx, lock)
	_, writeErr := tx.Exec("INSERT INTO work VALUES (" + strconv.Itoa(who) + ")")
	if commitErr := tx.Commit(); fenceErr == nil && (writeErr != nil || commitErr != nil) {
		t.Errorf("past the fence: write %v, commit %v", writeErr, commitErr)
	}
	return fenceErr
}

// advisoryKinds are databases of PostgreSQL without a lease table.
var advisoryKinds = []kind{
	{"PostgreSQL, pgx", func(t *testing.T) lockertest.Orders {
		return lockertest.Orders{Driver: "pgx", DSN: pgtest.Database(t)}
	}, ""},
	{"PostgreSQL, lib/pq", func(t *testing.T) lockertest.Orders {
		return lockertest.Orders{Driver: "postgres", DSN: pgtest.Database(t)}
	}, ""},
}

// The documentation lets a service delete the rows that were fenced a day ago.
// So each fence dates the row of its key anew, with a newer token and with the
// same one. Otherwise that would delete the rows of keys in use.
func TestFenceDatesItsRow(t *testing.T) {
	eachKind(t, func(t *testing.T, _ kind, o lockertest.Orders) {
		s := process(t, o)
		db := pool(t, o)
		withWork(t, o, db)
		back, prune := "now() - interval '2 days'", "now() - interval '1 day'"
		switch dialectOf(o) {
		case sqllock.SQLite:
			back, prune = "datetime('now', '-2 days')", "datetime('now', '-1 day')"
		case sqllock.MySQL:
			back, prune = "NOW(6) - INTERVAL 2 DAY", "NOW(6) - INTERVAL 1 DAY"
		}
		var lock *sqllock.Lock
		for round, what := range []string{"a first token", "a newer token", "the same token"} {
			if round < 2 {
				lock = mustLock(t, s, sqllock.ID(1))
			}
			if err := fencedWork(t, db, lock, 1); err != nil {
				t.Fatalf("Fence with %s: %v", what, err)
			}
			execute(t, db, "DELETE FROM latchkey_fence WHERE fenced_at < "+prune)
			if n := number(t, db, "SELECT count(*) FROM latchkey_fence WHERE key_id = 1"); n != 1 {
				t.Errorf("after a fence with %s the key has %d rows that are younger than a day, want 1", what, n)
			}
			if round == 0 {
				mustUnlock(t, lock)
			}
			execute(t, db, "UPDATE latchkey_fence SET fenced_at = "+back)
		}
	}, advisoryKinds...)
}

// The fence rejects a stale holder whose session's row was deleted. It does so
// even if the holder has had no token before.
func TestLeaseTableFence(t *testing.T) {
	eachLeaseTable(t, func(t *testing.T, o lockertest.Orders) {
		db := open(t, o.Driver, o.DSN)
		process(t, o) // makes the tables
		withWork(t, o, db)
		for _, tt := range []struct{ hadToken, emptied bool }{{hadToken: true}, {}, {emptied: true}} {
			first, later := process(t, o, sqllock.WithLease(time.Hour)), process(t, o)
			if tt.emptied {
				execute(t, db, "DELETE FROM latchkey_tokens") // tokens rise even if this table is emptied
			}
			stale := mustLock(t, first, sqllock.ID(1))
			if tt.hadToken {
				if err := fencedWork(t, db, stale, 1); err != nil {
					t.Fatalf("Fence: %v", err)
				}
			}
			execute(t, db, "DELETE FROM latchkey_sessions WHERE id IN (SELECT session FROM latchkey_locks)")
			execute(t, db, "DELETE FROM latchkey_locks")
			lock := mustLock(t, later, sqllock.ID(1))
			if err := fencedWork(t, db, lock, 2); err != nil {
				t.Fatalf("Fence of the later holder: %v", err)
			}
			want := sqllock.ErrFenced
			if drawsTokens(o) && !tt.hadToken {
				want = sqllock.ErrLost // the holder learns this when it requests a token
			}
			if err := fencedWork(t, db, stale, 3); err != want {
				t.Errorf("Fence of the stale holder: %v, want %v", err, want)
			}
			if number(t, db, "SELECT count(*) FROM work WHERE who = 3") > 0 {
				t.Error("the stale holder's work is in the database")
			}
			_ = stale.Unlock()
			mustUnlock(t, lock)
		}
	})
}

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

// passes reports whether the fence of key 1 accepts token in MariaDB.
func passes(t *testing.T, db *sql.DB, token dialect.Token) bool {
	t.Helper()
	tx := mustBegin(t, db)
	defer func() { _ = tx.Rollback() }()
	passage, err := usertx.Fence(t.Context(), tx, big(1)[0], token)
	if err == nil && passage == usertx.Passed {
		err = tx.Commit()
	}
	if err != nil {
		t.Fatalf("Fence: %v", err)
	}
	return passage == usertx.Passed
}

// The fence of MariaDB rejects a token that is older than one that it has seen,
// whichever mode or check the caller's connection has switched off.
func TestMySQLFence(t *testing.T) {
	t.Parallel()
	for _, options := range []string{
		"", "?check_constraint_checks=0", "?sql_mode=%27%27", "?sql_mode=%27NO_UNSIGNED_SUBTRACTION%27", "?sql_mode=%27SIMULTANEOUS_ASSIGNMENT%27",
		"?sql_mode=%27TRADITIONAL%27", "?sql_mode=%27ORACLE%27", "?sql_mode=%27HIGH_NOT_PRECEDENCE%27", "?check_constraint_checks=0&sql_mode=%27%27",
	} {
		t.Run(options, func(t *testing.T) {
			t.Parallel()
			o := mariadb(t)
			first, later := newToken(t, o), newToken(t, o)
			earlier, lastEpoch, otherSystem := later, later, later
			earlier.Number--
			lastEpoch.Epoch--
			lastEpoch.Number++
			otherSystem.System++
			otherSystem.Number = 1
			db := open(t, o.Driver, o.DSN+options)
			for _, step := range []struct {
				name  string
				token dialect.Token
				want  bool
			}{
				{"the first", first, true},
				{"the first again", first, true},
				{"a later one", later, true},
				{"the first after a later one", first, false},
				{"one that is earlier by one", earlier, false},
				{"a later number of an earlier epoch", lastEpoch, false},
				{"the later one again", later, true},
				{"one of another system", otherSystem, true},
			} {
				if got := passes(t, db, step.token); got != step.want {
					t.Errorf("%s: passed %t", step.name, got)
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
	if !passes(t, db, ahead) || !passes(t, db, after) || passes(t, db, ahead) {
		t.Error("the fence orders a token from before the failover after a later one")
	}
	if next := newToken(t, o); next.Epoch != after.Epoch {
		t.Errorf("the epoch rises although the server is the same: %+v, then %+v", after, next)
	}
}
