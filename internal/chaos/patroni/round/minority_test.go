//go:build linux

package round

import (
	"database/sql"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/latchkey-go/latchkey/internal/chaos/check"
	"github.com/latchkey-go/latchkey/internal/chaos/history"
	"github.com/latchkey-go/latchkey/internal/chaos/worker"
	"github.com/latchkey-go/latchkey/internal/pgtest"
	"github.com/latchkey-go/latchkey/sqllock"
)

// A holder whose old primary lives on is refused by the new one. What it commits
// on the old one is lost, or kept, by which of the two databases remains.
func TestLongMinority(t *testing.T) {
	old := pgtest.New(t)
	pool, next := openCluster(t, old), (*sql.DB)(nil)
	for _, statement := range append(sqllock.FenceSchema(sqllock.PostgreSQL), worker.Schema, marksSchema) {
		if _, err := pool.ExecContext(t.Context(), statement); err != nil {
			t.Fatal(err)
		}
	}
	standby, err := old.Standby()
	if err != nil {
		t.Fatal(err)
	}
	r, o := &run{result: &Result{}}, &Outcome{}
	m, err := r.holdIn(t.Context(), pool, o)
	if err != nil {
		t.Fatal(err)
	}
	if err := standby.Promote(); err != nil {
		t.Fatal(err)
	}
	next = openCluster(t, standby)
	if err := m.goOnIn(t.Context(), next, time.Minute); err != nil {
		t.Fatal(err)
	}
	if want := (Minority{Refused: 1}); o.Minority != want || len(r.oldWrites) != 1 || len(r.result.Violations) > 0 {
		t.Fatalf("%+v, %d old writes, %v; want %+v", o.Minority, len(r.oldWrites), r.result.Violations, want)
	}
	rows, mark := storedIn(t, next)
	oldRows, oldMark := storedIn(t, pool)
	for _, tt := range []struct {
		name  string
		rows  []check.Stored
		marks []int64
		both  int
		want  Minority
	}{
		{"the new primary remains", rows, mark, 0, Minority{Lost: 1}},
		{"the old primary remains", oldRows, oldMark, 0, Minority{Kept: 1}},
		{"a later fault loses both", rows, nil, 0, Minority{Lost: 1}},
		{"both are stored", oldRows, mark, 1, Minority{}},
		{"both are stored, and the old primary did not say so", oldRows, mark, 1, Minority{}},
		{"the old primary did not acknowledge", rows, mark, 0, Minority{Rejected: 1}},
	} {
		all, writes := []Outcome{{Row: 8}, {Row: 8, Begin: history.Now()}}, slices.Clone(r.oldWrites)
		if strings.Contains(tt.name, "did not") {
			writes[0].Result = history.Failed
		}
		both := remained(all, writes, tt.rows, tt.marks)
		if len(both) != tt.both || all[0].Minority != tt.want || all[1].Minority != (Minority{}) {
			t.Errorf("%s: %+v, stored with their marks: %+v; want %d and %+v", tt.name, all, both, tt.both, tt.want)
		}
	}
	var refused []history.Event // the first write may have reached the standby, or not
	for _, e := range r.events {
		if e.Write.Result == history.Fenced {
			refused = append(refused, e)
		}
	}
	if err := check.Fenced(refused, rows, false); err != nil || len(refused) != 1 {
		t.Errorf("%d refused, %v", len(refused), err)
	}

	// Without a new primary the write goes through, and that is a violation.
	if err := m.goOnIn(t.Context(), pool, time.Minute); err != nil || len(r.result.Violations) != 1 || !strings.Contains(r.result.Violations[0], "let a holder of the old one write") {
		t.Errorf("%v, %v", err, r.result.Violations)
	}
	oldRows, oldMark = storedIn(t, pool)
	if both := remained([]Outcome{{Row: 8}}, r.oldWrites, oldRows, oldMark); len(r.oldWrites) != 2 || len(both) != 1 {
		t.Errorf("of %+v stored with their marks: %+v", r.oldWrites, both)
	}

	// A write that is to prove something needs its mark.
	if _, err := next.ExecContext(t.Context(), "ALTER TABLE marks ADD CHECK (number < 0) NOT VALID"); err != nil {
		t.Fatal(err)
	}
	if err := m.goOnIn(t.Context(), next, time.Minute); err != nil || o.Minority.Rejected != 1 || len(r.oldWrites) != 2 {
		t.Errorf("%v, %+v, %d old writes", err, o.Minority, len(r.oldWrites))
	}
	if _, err := next.ExecContext(t.Context(), "DROP TABLE marks"); err != nil {
		t.Fatal(err)
	}
	if err := m.goOnIn(t.Context(), next, time.Minute); err != nil || len(r.result.Violations) != 2 || !strings.Contains(r.result.Violations[1], "marks") || len(r.oldWrites) != 2 {
		t.Errorf("%v, %v, %d old writes", err, r.result.Violations, len(r.oldWrites))
	}

	// A fence that does not decide is a violation, if the new primary stores marks.
	if _, err := next.ExecContext(t.Context(), marksSchema); err != nil {
		t.Fatal(err)
	}
	tx, err := next.BeginTx(t.Context(), nil)
	if err == nil {
		_, err = tx.ExecContext(t.Context(), "LOCK TABLE latchkey_fence")
	}
	if err != nil {
		t.Fatal(err)
	}
	if err := m.goOnIn(t.Context(), next, time.Millisecond); err == nil || len(r.result.Violations) != 3 || !strings.Contains(r.result.Violations[2], "does not decide") {
		t.Errorf("%v, %v", err, r.result.Violations)
	}
	if err := tx.Rollback(); err != nil {
		t.Fatal(err)
	}

	// A holder that was told does not write.
	m.end()
	if err := m.goOnIn(t.Context(), next, time.Minute); err != nil || o.Minority.Told != 1 {
		t.Errorf("%v, %+v", err, o.Minority)
	}
}

// storedIn returns the writes and the marks in db.
func storedIn(t *testing.T, db *sql.DB) ([]check.Stored, []int64) {
	t.Helper()
	rows, err := worker.Stored(t.Context(), db)
	if err != nil {
		t.Fatal(err)
	}
	all, err := marks(t.Context(), db)
	if err != nil {
		t.Fatal(err)
	}
	return rows, all
}

func openCluster(t *testing.T, c *pgtest.Cluster) *sql.DB {
	t.Helper()
	db, err := sql.Open("pgx", c.DSN(""))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = db.Close() })
	return db
}
