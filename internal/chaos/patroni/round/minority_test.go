//go:build linux

package round

import (
	"database/sql"
	"strings"
	"testing"

	"github.com/latchkey-go/latchkey/internal/chaos/check"
	"github.com/latchkey-go/latchkey/internal/chaos/history"
	"github.com/latchkey-go/latchkey/internal/chaos/worker"
	"github.com/latchkey-go/latchkey/internal/pgtest"
	"github.com/latchkey-go/latchkey/sqllock"
)

// A holder whose old primary lives on is refused by the new one. What it commits
// on the old one is counted as lost.
func TestMinority(t *testing.T) {
	old := pgtest.New(t)
	pool, next := openCluster(t, old), (*sql.DB)(nil)
	for _, statement := range append(sqllock.FenceSchema(sqllock.PostgreSQL), worker.Schema) {
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
	if err := m.goOnIn(t.Context(), next); err != nil {
		t.Fatal(err)
	}
	if want := (Minority{Refused: 1, Lost: 1}); o.Minority != want || len(r.doomed) != 1 || len(r.result.Violations) > 0 {
		t.Errorf("%+v, %d doomed, %v; want %+v", o.Minority, len(r.doomed), r.result.Violations, want)
	}
	rows, err := worker.Stored(t.Context(), next)
	if err != nil {
		t.Fatal(err)
	}
	if got := revived(r.doomed, rows); len(got) > 0 {
		t.Errorf("stored on the new primary: %+v", got)
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
	if err := m.goOnIn(t.Context(), pool); err != nil || len(r.result.Violations) != 1 || !strings.Contains(r.result.Violations[0], "let a holder of the old one write") {
		t.Errorf("%v, %v", err, r.result.Violations)
	}
	if rows, err = worker.Stored(t.Context(), pool); err != nil || len(revived(r.doomed, rows)) != 2 {
		t.Errorf("%v, on the old primary: %+v, want both", err, revived(r.doomed, rows))
	}

	// A holder that was told does not write.
	m.end()
	if err := m.goOnIn(t.Context(), next); err != nil || o.Minority.Told != 1 {
		t.Errorf("%v, %+v", err, o.Minority)
	}
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
