package protocol

import (
	"database/sql"
	"slices"
	"strings"
	"testing"

	"github.com/latchkey-go/latchkey/internal/dbtest"
	"github.com/latchkey-go/latchkey/ratelimit"
	"github.com/latchkey-go/latchkey/sqllock"
)

// pg_locks has the page's rows while the page's locks are held, and no other
// row. Locks at session level and at transaction level look alike there.
func TestProtocolAdvisoryLocks(t *testing.T) {
	var want []string
	for _, row := range Table(t, "what is held") {
		want = append(want, strings.Join(row[1:], " "))
	}
	slices.Sort(want)
	dbtest.EachDriver(t, func(t *testing.T, driver, dsn string) {
		db := dbtest.Open(t, driver, dsn)
		s := dbtest.Session(t, driver, dsn)
		first, second := dbtest.Lock(t, s, sqllock.ID(-5)), dbtest.Lock(t, s, sqllock.Pair(-7, 8))
		for range 2 {
			if _, err := s.TryRLock(t.Context(), sqllock.ID(9)); err != nil {
				t.Fatal(err)
			}
			if _, err := ratelimit.AtMost(2, s, "export").Acquire(t.Context(), "user-1"); err != nil {
				t.Fatal(err)
			}
		}
		dbtest.Lock(t, s, sqllock.Namespace("export").Keyed([]byte("secret")).Key("user-1"))
		compare(t, "a Session", db, want)

		dbtest.Unlock(t, first)
		dbtest.Unlock(t, second)
		onConn := sqllock.OnConn(dbtest.Conn(t, db))
		dbtest.Lock(t, onConn, sqllock.ID(-5))
		tx := dbtest.Transaction(t, db)
		if err := sqllock.TryTx(t.Context(), tx, sqllock.Pair(-7, 8)); err != nil {
			t.Fatal(err)
		}
		compare(t, "a Session, OnConn and TryTx", db, want)

		var name string
		if err := db.QueryRow("SELECT application_name FROM pg_stat_activity WHERE pid = (SELECT min(pid) FROM pg_locks WHERE mode = 'ShareLock' AND objsubid = 1)").Scan(&name); err != nil || !strings.HasSuffix(name, "latchkey") {
			t.Errorf("the connection of the Session has the name %q, %v", name, err)
		}
	})
}

// compare compares the advisory locks in the database of db with want.
func compare(t *testing.T, who string, db *sql.DB, want []string) {
	t.Helper()
	rows, err := db.Query(`SELECT concat_ws(' ', classid, objid, objsubid, mode) FROM pg_locks
		WHERE locktype = 'advisory' AND granted AND database = (SELECT oid FROM pg_database WHERE datname = current_database())`)
	if err != nil {
		t.Fatal(err)
	}
	defer rows.Close()
	var got []string
	for rows.Next() {
		var row string
		if err := rows.Scan(&row); err != nil {
			t.Fatal(err)
		}
		got = append(got, row)
	}
	if slices.Sort(got); rows.Err() != nil || !slices.Equal(got, want) {
		t.Errorf("%s: pg_locks has\n%s\nthe page has\n%s", who, strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}
