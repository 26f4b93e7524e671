package lockwatch_test

import (
	"database/sql"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/latchkey-go/latchkey/internal/dbtest"
	"github.com/latchkey-go/latchkey/internal/lockertest"
	"github.com/latchkey-go/latchkey/internal/pgtest"
	"github.com/latchkey-go/latchkey/sqllock"
)

// The query on docs/runbook.md finds holders and waiters, and what the registry
// says of them.
func TestStuckQuery(t *testing.T) {
	page, err := os.ReadFile("../../docs/runbook.md")
	if err != nil {
		t.Fatal(err)
	}
	_, section, _ := strings.Cut(string(page), "## Who is stuck")
	_, stuckQuery, _ := strings.Cut(section, "```sql\n")
	stuckQuery, _, ok := strings.Cut(stuckQuery, ";\n```")
	if !ok {
		t.Fatal("the page has no query")
	}
	t.Parallel()
	dsn := pgtest.Database(t)
	db := withRegistry(t, "pgx", dsn)
	s := session(t, "pgx", dsn)
	key, wanted := sqllock.Namespace("export").Key("user-1"), sqllock.Pair(-7, -8)
	mustLock(t, s, key)
	mustLock(t, s, wanted)
	beat{session: 5, key: key, name: "user-1"}.write(t, db)
	tx, _ := client(t, db)
	inBackground(t, tx, "SELECT pg_advisory_xact_lock(-7, -8)")
	lockertest.Eventually(t, "it waits", func() bool { return len(inspect(t, db).Waiters) == 1 })
	poll(t, db, 5, &key, wanted, time.Hour)
	poll(t, db, 6, &wanted, key, time.Hour)
	if n := dbtest.Number(t, db, "SELECT count(*) FROM ("+stuckQuery+") q WHERE holder = 'session 6, 2 callers holding -7, -8'"); n != 1 {
		t.Errorf("%d polling callers that hold a Pair, in the form of the key column; want 1", n)
	}
	type row struct {
		what, key string
		blocked   bool
		name      sql.NullString
	}
	rows, err := db.Query("SELECT what, key, blocked_by IS NOT NULL AND cardinality(blocked_by) > 0, name FROM (" + stuckQuery + ") q")
	if err != nil {
		t.Fatal(err)
	}
	defer rows.Close()
	got := map[row]bool{}
	for rows.Next() {
		var r row
		if err := rows.Scan(&r.what, &r.key, &r.blocked, &r.name); err != nil {
			t.Fatal(err)
		}
		got[r] = true
	}
	if err := rows.Err(); err != nil {
		t.Fatal(err)
	}
	for _, want := range []row{
		{"holds", strconv.FormatInt(key.Int64(), 10), false, sql.NullString{String: "user-1", Valid: true}},
		{"holds", "-7, -8", false, sql.NullString{}},
		{"waits", "-7, -8", true, sql.NullString{}},
		{"polls", "-7, -8", false, sql.NullString{}},
		{"polls", strconv.FormatInt(key.Int64(), 10), false, sql.NullString{}},
	} {
		if !got[want] {
			t.Errorf("no %+v in %+v", want, got)
		}
	}
	if len(got) != 5 {
		t.Errorf("%+v", got)
	}
}
