package postgres

import (
	"context"
	"database/sql"
	"strings"
	"testing"

	"github.com/latchkey-go/latchkey/internal/dialect"
	"github.com/latchkey-go/latchkey/internal/pgtest"
)

// The server reads its locks once for all the waits that a record names, not once
// for each. Otherwise some hundred waits among thousands of locks take longer than
// the record may. A lock counts only on its own server process.
func TestWaitsAreCheckedTogether(t *testing.T) {
	t.Parallel()
	db := openPool(t, "pgx", pgtest.Database(t))
	conn, err := db.Conn(t.Context())
	must(t, err)
	defer conn.Close()
	var pid int64
	must(t, conn.QueryRowContext(t.Context(), "SELECT pg_catalog.pg_backend_pid() FROM pg_advisory_lock(-1) AS one, pg_advisory_lock(-2, 3) AS two").Scan(&pid))
	pair := dialect.Key{Space: dialect.TwoInts, ID: -2<<32 | 3}
	r := &Register{Waits: []WaitingKey{
		{Key: dialect.Key{ID: 1}, Holding: dialect.Key{ID: -1}, Holds: true, Waiters: 1, HoldingPID: pid},
		{Key: dialect.Key{ID: 2}, Holding: pair, Holds: true, Waiters: 1, HoldingPID: pid},
		{Key: dialect.Key{ID: 3}, Holding: dialect.Key{ID: -1}, Holds: true, Waiters: 1, HoldingPID: pid + 1},
		{Key: dialect.Key{ID: 3}, Waiters: 2},
		{Key: dialect.Key{ID: 4}, Holding: dialect.Key{ID: -9}, Holds: true, Waiters: 1}, // the Session's own
	}}
	if got, want := strings.Join(texts(t, db, "SELECT format('%s: %s %s %s', k, hs, hk, waiters) FROM "+r.waitRows()+" ORDER BY k"), "; "),
		"1: 0 -1 1; 2: 1 -8589934589 1; 3: -1 0 3; 4: 0 -9 1"; got != want {
		t.Errorf("%s; want %s", got, want)
	}
	plan := strings.Join(texts(t, db, "EXPLAIN VERBOSE SELECT * FROM "+r.waitRows()), "\n")
	if !strings.Contains(plan, "hashed SubPlan") {
		t.Errorf("the server may read its locks for each row:\n%s", plan)
	}
}

func texts(t *testing.T, db *sql.DB, query string) (all []string) {
	t.Helper()
	rows, err := db.QueryContext(context.Background(), query)
	must(t, err)
	defer rows.Close()
	for rows.Next() {
		var text string
		must(t, rows.Scan(&text))
		all = append(all, text)
	}
	return all
}
