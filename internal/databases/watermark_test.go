package databases

import (
	"database/sql"
	"math"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/latchkey-go/latchkey/internal/lockertest"
	"github.com/latchkey-go/latchkey/sqllock"
	"github.com/latchkey-go/latchkey/sqllock/watermark"
)

// eachMarks runs test on a fresh database of each kind, with the table of
// watermarks and a table that the work writes to.
func eachMarks(t *testing.T, test func(t *testing.T, o lockertest.Orders, db *sql.DB)) {
	eachKind(t, func(t *testing.T, k kind, o lockertest.Orders) {
		if isSQLite(o) {
			o.DSN += "&_txlock=immediate" // otherwise SQLite rejects a transaction that reads before it writes
		}
		db := pool(t, o)
		create(t, db, watermark.Schema(dialectOf(o)))
		execute(t, db, "CREATE TABLE work (who INTEGER)")
		test(t, o, db)
	})
}

// markedWork commits the work and the watermark of one key, whatever Advance
// has returned.
func markedWork(t *testing.T, db *sql.DB, to int64) error {
	t.Helper()
	tx, err := db.Begin()
	if err != nil {
		t.Error(err)
		return err
	}
	markErr := watermark.Advance(t.Context(), tx, sqllock.Pair(-1, 1), to)
	_, writeErr := tx.Exec("INSERT INTO work VALUES (1)")
	commitErr := tx.Commit()
	if passed := writeErr == nil && commitErr == nil; passed != (markErr == nil) {
		t.Errorf("Advance returned %v; write %v, commit %v", markErr, writeErr, commitErr)
	}
	return markErr
}

func TestAdvance(t *testing.T) {
	eachMarks(t, func(t *testing.T, o lockertest.Orders, db *sql.DB) {
		if o.Driver == "mysql" {
			db = open(t, o.Driver, o.DSN+"?clientFoundRows=true") // rows that stay unchanged count then
		}
		if at, ok, err := watermark.Get(t.Context(), db, sqllock.Pair(-1, 1)); err != nil || ok || at != 0 {
			t.Errorf("Get before any: %d, %t, %v", at, ok, err)
		}
		want := int64(math.MinInt64)
		for _, step := range []struct {
			to   int64
			want error
		}{
			{math.MinInt64, nil},
			{math.MinInt64, watermark.ErrPassed},
			{-7, nil},
			{-8, watermark.ErrPassed},
			{-7, watermark.ErrPassed},
			{0, nil},
			{math.MaxInt64, nil},
			{math.MaxInt64, watermark.ErrPassed},
			{-7, watermark.ErrPassed},
		} {
			if err := markedWork(t, db, step.to); err != step.want {
				t.Errorf("to %d: %v, want %v", step.to, err, step.want)
			}
			want = max(want, step.to)
			if at, ok, err := watermark.Get(t.Context(), db, sqllock.Pair(-1, 1)); err != nil || !ok || at != want {
				t.Errorf("Get after %d: %d, %t, %v, want %d", step.to, at, ok, err, want)
			}
		}
		if n := number(t, db, "SELECT count(*) FROM work"); n != 4 {
			t.Errorf("the work of %d watermarks is in the database, want 4", n)
		}
	})
}

// Several callers advance a key to the same watermarks at once, without any
// lock. One of them succeeds for each watermark.
func TestAdvanceTogether(t *testing.T) {
	const callers, marks = 4, 10
	eachMarks(t, func(t *testing.T, o lockertest.Orders, db *sql.DB) {
		var (
			wg   sync.WaitGroup
			done [marks]atomic.Int32
		)
		for range callers {
			wg.Go(func() {
				for i := range done {
					switch err := markedWork(t, db, int64(i)); err {
					case nil:
						done[i].Add(1)
					case watermark.ErrPassed:
					default:
						t.Errorf("Advance: %v", err)
					}
				}
			})
		}
		wg.Wait()
		var all int
		for i := range done {
			n := int(done[i].Load())
			if n > 1 {
				t.Errorf("watermark %d: %d callers have advanced to it", i, n)
			}
			all += n
		}
		if n := number(t, db, "SELECT count(*) FROM work"); n != all || done[marks-1].Load() != 1 {
			t.Errorf("%d callers have advanced, %d rows of work are in the database; the last watermark: %d", all, n, done[marks-1].Load())
		}
	})
}

// On each kind of database the error says what to create.
func TestAdvanceWithoutTable(t *testing.T) {
	eachMarks(t, func(t *testing.T, o lockertest.Orders, db *sql.DB) {
		execute(t, db, "DROP TABLE latchkey_watermarks")
		want := map[sqllock.Dialect]string{
			sqllock.SQLite: "watermark.Schema(SQLite)", sqllock.MySQL: "watermark.Schema(MySQL)", sqllock.PostgreSQL: "watermark.Schema(PostgreSQL)",
		}[dialectOf(o)]
		if err := markedWork(t, db, 1); err == nil || !strings.Contains(err.Error(), want) || !strings.Contains(err.Error(), "latchkey_watermarks") {
			t.Errorf("Advance: %v, want an error that mentions %s", err, want)
		}
		_, ok, err := watermark.Get(t.Context(), db, sqllock.Pair(-1, 1))
		if err == nil || ok || !strings.Contains(err.Error(), want) || !strings.Contains(err.Error(), "latchkey_watermarks") {
			t.Errorf("Get: %t, %v, want an error that mentions %s", ok, err, want)
		}
	})
}
