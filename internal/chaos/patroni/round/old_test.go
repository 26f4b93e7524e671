//go:build linux

package round

import (
	"strings"
	"testing"

	"github.com/latchkey-go/latchkey/internal/chaos/check"
	"github.com/latchkey-go/latchkey/internal/chaos/history"
	"github.com/latchkey-go/latchkey/internal/chaos/worker"
	"github.com/latchkey-go/latchkey/internal/dbtest"
	"github.com/latchkey-go/latchkey/internal/pgtest"
	"github.com/latchkey-go/latchkey/sqllock"
)

// A holder whose old primary lives on is refused by the new one, stores nothing
// there, and goes on to write on the old one.
func TestLongOldHolder(t *testing.T) {
	old := pgtest.New(t)
	pool := dbtest.Open(t, "pgx", old.DSN(""))
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
	h, err := r.holdIn(t.Context(), pool)
	if err != nil {
		t.Fatal(err)
	}
	if err := standby.Promote(); err != nil {
		t.Fatal(err)
	}
	next := dbtest.Open(t, "pgx", standby.DSN(""))
	if err := h.goOn(t.Context(), next, o); err != nil {
		t.Fatal(err)
	}
	var results []history.Result
	for _, e := range r.events {
		results = append(results, e.Write.Result)
	}
	if n := len(results); o.Refused != 1 || n < 3 || results[n-2] != history.Fenced || results[n-1] != history.OK || len(r.result.Violations) > 0 {
		t.Fatalf("%d refused, writes %v, %v", o.Refused, results, r.result.Violations)
	}
	rows, err := worker.Stored(t.Context(), next)
	if err != nil {
		t.Fatal(err)
	}
	if err := check.Fenced(r.events[len(r.events)-2:len(r.events)-1], rows, false); err != nil {
		t.Error(err)
	}

	// Without a new primary the write goes through, and that is a violation.
	if err := h.goOn(t.Context(), pool, o); err != nil || len(r.result.Violations) != 1 || !strings.Contains(r.result.Violations[0], "let a holder of the old one write") {
		t.Errorf("%v, %v", err, r.result.Violations)
	}

	// A holder that was told does not write.
	h.end()
	before := len(r.events)
	if err := h.goOn(t.Context(), next, o); err != nil || len(r.events) != before || o.Refused != 1 {
		t.Errorf("%v, %d writes more, %d refused", err, len(r.events)-before, o.Refused)
	}
}
