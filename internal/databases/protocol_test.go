package databases

import (
	"crypto/sha256"
	"database/sql"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/latchkey-go/latchkey/httpmw/idempotency"
	"github.com/latchkey-go/latchkey/internal/lockertest"
	"github.com/latchkey-go/latchkey/internal/mariadbtest"
	"github.com/latchkey-go/latchkey/internal/protocol"
	"github.com/latchkey-go/latchkey/sqllock"
	"github.com/latchkey-go/latchkey/sqllock/lockwatch"
	"github.com/latchkey-go/latchkey/sqllock/watermark"
)

// Tests of docs/protocol.md.

// allSchemas returns the statements of all Schema functions.
func allSchemas(d sqllock.Dialect) []string {
	return slices.Concat(sqllock.Schema(d), sqllock.FenceSchema(d), watermark.Schema(d), lockwatch.Schema(d), idempotency.Schema(d))
}

// texts returns the rows of a query, whose columns are joined by spaces.
func texts(t *testing.T, db *sql.DB, query string) (all []string) {
	t.Helper()
	rows, err := db.QueryContext(t.Context(), query)
	must(t, err)
	defer rows.Close()
	columns, err := rows.Columns()
	must(t, err)
	for rows.Next() {
		values, dest := make([]sql.NullString, len(columns)), make([]any, len(columns))
		for i := range values {
			dest[i] = &values[i]
		}
		must(t, rows.Scan(dest...))
		var row []string
		for _, v := range values {
			row = append(row, v.String)
		}
		all = append(all, strings.Join(row, " "))
	}
	must(t, rows.Err())
	return all
}

// A Session with two locks has the named locks of the page in the server, and no
// other.
func TestProtocolNamedLocks(t *testing.T) {
	t.Parallel()
	server := mariadbtest.New(t)
	must(t, server.Execute("CREATE DATABASE app"))
	o := lockertest.Orders{Driver: "mysql", DSN: server.DSN("app")}
	s := process(t, o)
	mustLock(t, s, sqllock.ID(-42))
	mustLock(t, s, sqllock.Pair(-7, 8))
	got := texts(t, open(t, o.Driver, o.DSN), "SELECT table_schema FROM information_schema.metadata_lock_info WHERE lock_type = 'User lock' ORDER BY 1")
	rows := protocol.Table(t, "lock")
	if len(got) != len(rows) {
		t.Fatalf("the server has %q", got)
	}
	for i, row := range rows {
		pattern := "^" + strings.Replace(regexp.QuoteMeta(row[1]), " and 16 hex digits", "[0-9a-f]{16}", 1) + "$"
		if !regexp.MustCompile(pattern).MatchString(got[i]) {
			t.Errorf("%s: %q, on the page %q", row[0], got[i], row[1])
		}
	}
}

// columnsQuery has a row for each column: its table, its name, its type with null
// and default, and its place in the primary key, or 0.
var columnsQuery = map[sqllock.Dialect]string{
	sqllock.PostgreSQL: `SELECT c.relname, a.attname, concat(replace(format_type(a.atttypid, a.atttypmod), 'timestamp with time zone', 'timestamptz'),
			CASE WHEN a.attnotnull THEN '' ELSE ' null' END, CASE WHEN a.atthasdef THEN ' default' ELSE '' END),
			coalesce(array_position(i.indkey::int2[], a.attnum) + 1, 0)
		FROM pg_attribute a JOIN pg_class c ON c.oid = a.attrelid LEFT JOIN pg_index i ON i.indrelid = c.oid AND i.indisprimary
		WHERE a.attnum > 0 AND c.relkind = 'r' AND c.relnamespace = 'public'::regnamespace`,
	sqllock.SQLite: `SELECT t.name, c.name, c.type || iif(c."notnull", '', ' null') || iif(c.dflt_value IS NULL, '', ' default'), c.pk
		FROM sqlite_master t, pragma_table_info(t.name) c WHERE t.type = 'table'`,
	sqllock.MySQL: `SELECT c.table_name, c.column_name, CONCAT(REGEXP_REPLACE(c.column_type, 'int[(][0-9]+[)]', 'int'),
			IF(c.is_nullable = 'YES', ' null', ''), IF(c.column_default IS NULL OR c.column_default = 'NULL', '', ' default')), COALESCE(k.ordinal_position, 0)
		FROM information_schema.columns c LEFT JOIN information_schema.key_column_usage k ON k.constraint_name = 'PRIMARY'
			AND k.table_schema = c.table_schema AND k.table_name = c.table_name AND k.column_name = c.column_name
		WHERE c.table_schema = DATABASE()`,
}

// The Schema functions make the tables of the page: their columns, types and
// primary keys, and no others.
func TestProtocolTables(t *testing.T) {
	onEach(t, slices.Concat(kinds, advisoryKinds[:1]), func(t *testing.T, _ kind, o lockertest.Orders) {
		d := dialectOf(o)
		place := map[sqllock.Dialect]int{sqllock.PostgreSQL: 1, sqllock.SQLite: 2, sqllock.MySQL: 3}[d]
		want, keys, table := map[string]string{}, map[string]string{}, ""
		for _, row := range protocol.Table(t, "column") {
			switch cell := row[place]; {
			case strings.HasPrefix(row[0], "latchkey_"):
				if table = row[0]; cell != "–" {
					keys[table] = cell
				}
			case cell != "–":
				want[table+" "+row[0]] = cell
			}
		}
		db := open(t, o.Driver, o.DSN)
		create(t, db, allSchemas(d))
		got, primary := map[string]string{}, map[string][]string{}
		rows, err := db.QueryContext(t.Context(), columnsQuery[d])
		must(t, err)
		defer rows.Close()
		for rows.Next() {
			var table, column, is string
			var key int
			must(t, rows.Scan(&table, &column, &is, &key))
			if got[table+" "+column] = is; key > 0 {
				primary[table] = append(primary[table], strconv.Itoa(key)+column)
			}
		}
		must(t, rows.Err())
		for _, column := range slices.Sorted(maps.Keys(want)) {
			if got[column] != want[column] {
				t.Errorf("%s is %q, on the page %q", column, got[column], want[column])
			}
			delete(got, column)
		}
		if len(got) > 0 {
			t.Errorf("not on the page: %v", got)
		}
		for table, key := range keys {
			slices.Sort(primary[table])
			for i, column := range primary[table] {
				primary[table][i] = column[1:]
			}
			if is := strings.Join(primary[table], ", "); is != key {
				t.Errorf("the key of %s is %q, on the page %q", table, is, key)
			}
		}
	})
}

// microseconds is the clock of a database, as an SQL expression.
var microseconds = map[sqllock.Dialect]string{
	sqllock.PostgreSQL: "(extract(epoch FROM clock_timestamp()) * 1000000)::bigint",
	sqllock.SQLite:     "CAST((julianday('now') - 2440587.5) * 86400000000.0 AS INTEGER)",
	sqllock.MySQL:      "CAST(UNIX_TIMESTAMP(NOW(6)) * 1000000 AS SIGNED)",
}

// A Session with a lease table writes the rows of the page: the end of its lease
// in the page's unit, and a row for each lock. It deletes them at their end.
func TestProtocolRows(t *testing.T) {
	eachLeaseTable(t, func(t *testing.T, o lockertest.Orders) {
		d := dialectOf(o)
		units := protocol.Table(t, "expires in")
		unit := units[map[sqllock.Dialect]int{sqllock.PostgreSQL: 0, sqllock.SQLite: 1, sqllock.MySQL: 2}[d]]
		day, err := strconv.ParseInt(strings.Fields(unit[2])[0], 10, 64)
		must(t, err)
		left := map[sqllock.Dialect]string{
			sqllock.PostgreSQL: "extract(epoch FROM expires - clock_timestamp())::bigint",
			sqllock.SQLite:     "expires - " + microseconds[d] + " / 1000",
			sqllock.MySQL:      "expires - " + microseconds[d],
		}[d]

		db := open(t, o.Driver, o.DSN)
		s := process(t, o, sqllock.WithLease(24*time.Hour))
		if n := number(t, db, "SELECT "+left+" FROM latchkey_sessions"); int64(n) > day+day/1000 || int64(n) < day-day/10 {
			t.Errorf("the lease of %s ends in %d, on the page after %s", unit[0], n, unit[2])
		}
		before := number(t, db, "SELECT statement FROM latchkey_sessions")
		one, two := mustLock(t, s, sqllock.ID(-42)), mustLock(t, s, sqllock.Pair(-7, 8))
		if after := number(t, db, "SELECT statement FROM latchkey_sessions"); after <= before {
			t.Errorf("the session's call has the number %d, after %d", after, before)
		}
		counts := ""
		if d == sqllock.MySQL {
			counts = " AND l.statement >= s.counts_from"
		}
		const pair = -7<<32 + 8
		want := []string{"0 -42", "1 " + strconv.Itoa(pair)}
		rows := "SELECT l.key_space, l.key_id FROM latchkey_locks l JOIN latchkey_sessions s ON s.id = l.session" + counts + " ORDER BY 1"
		if got := texts(t, db, rows); !slices.Equal(got, want) {
			t.Errorf("the rows of the locks are %q, want %q", got, want)
		}
		mustUnlock(t, one)
		if got := texts(t, db, rows); !slices.Equal(got, want[1:]) {
			t.Errorf("after an Unlock the rows are %q, want %q", got, want[1:])
		}
		mustUnlock(t, two)
		lockertest.Eventually(t, "Close deletes the row of the session", func() bool { // unless the server takes a second
			const sessions = "SELECT count(*) FROM latchkey_sessions"
			before := number(t, db, sessions)
			must(t, process(t, o).Close())
			return number(t, db, sessions) == before
		})
	})
}

// Fence writes the token of the page, and Lock.Token is its text.
func TestProtocolTokens(t *testing.T) {
	onEach(t, slices.Concat(kinds, advisoryKinds), func(t *testing.T, k kind, o lockertest.Orders) {
		d := dialectOf(o)
		db := open(t, o.Driver, unprepared(o.Driver, o.DSN))
		execute(t, db, "CREATE TABLE work (who INTEGER)")
		create(t, db, sqllock.FenceSchema(d))
		clock, tokens := microseconds[d], "SELECT system, 0, number FROM latchkey_tokens"
		switch {
		case d == sqllock.PostgreSQL && !isUnknownServer(o):
			clock = "(pg_current_wal_insert_lsn() - '0/0')::bigint"
			tokens = "SELECT system_identifier, 1, " + clock + " FROM pg_control_system()"
		case d == sqllock.MySQL:
			tokens = "SELECT system_id, epoch, number FROM latchkey_tokens"
		}
		s := process(t, o)
		from := number(t, db, "SELECT "+clock)
		lock := mustLock(t, s, sqllock.ID(1))
		must(t, fencedWork(t, db, lock, 1))

		var system, timeline, lsn, wantSystem, wantTimeline, to int64
		column := map[bool]string{true: "system_id", false: "system"}[d == sqllock.MySQL]
		must(t, db.QueryRow("SELECT "+column+", timeline, lsn FROM latchkey_fence WHERE key_space = 0 AND key_id = 1").Scan(&system, &timeline, &lsn))
		must(t, db.QueryRow(tokens).Scan(&wantSystem, &wantTimeline, &to))
		if isTiDB(o) {
			from -= 1_000_000 // two clocks
		}
		if system != wantSystem || timeline != wantTimeline || lsn < int64(from) || lsn > to {
			t.Errorf("the token is (%d, %d, %d), want (%d, %d, %d to %d)", system, timeline, lsn, wantSystem, wantTimeline, from, to)
		}
		text, err := lock.Token(t.Context())
		if want := fmt.Sprintf("%016x-%016x-%016x", uint64(system), uint64(timeline), uint64(lsn)); err != nil || text != want {
			t.Errorf("Token: %s, %v; want %s", text, err, want)
		}
	})
}

// An idempotent request has the hashes of the page in its row, and holds the
// page's lock.
func TestProtocolResponses(t *testing.T) {
	limits := protocol.Table(t, "place of a limit, or request")
	hashes := protocol.Table(t, "column | hashed parts")
	last := limits[len(limits)-1]
	lockNumber, err := strconv.ParseInt(last[2], 10, 64)
	must(t, err)
	for _, row := range hashes {
		text, _, _ := strings.Cut(row[1], "`: ")
		if got := fmt.Sprintf("%x", sha256.Sum256([]byte(text))); got != row[2] {
			t.Errorf("%s: the hash of the page's parts is %s, and not %s", row[0], got, row[2])
		}
	}
	if want := "pay:" + hashes[0][2]; last[1] != want {
		t.Errorf("the page locks %q, want %q", last[1], want)
	}
	eachBankAndPostgreSQL(t, func(t *testing.T, b *bank) {
		locks := sqllock.NewMemory()
		pay := b.then(func(w http.ResponseWriter, r *http.Request) {
			if _, err := locks.TryLock(r.Context(), sqllock.ID(lockNumber)); !errors.Is(err, sqllock.ErrHeld) {
				t.Errorf("the lock of the page is not held: %v", err)
			}
			w.Header().Set("X-Receipt", "r-1")
			w.WriteHeader(http.StatusCreated)
		})
		wantStatus(t, post(t.Context(), b.once(locks).Handler(pay), "k-1", "10 to bob"), http.StatusCreated)
		hexed := map[sqllock.Dialect]string{
			sqllock.PostgreSQL: "encode(key, 'hex'), encode(fingerprint, 'hex'), convert_from(header, 'UTF8')",
			sqllock.SQLite:     "lower(hex(key)), lower(hex(fingerprint)), CAST(header AS TEXT)",
			sqllock.MySQL:      "LOWER(HEX(`key`)), LOWER(HEX(fingerprint)), CAST(header AS CHAR)",
		}[b.dialect]
		want := hashes[0][2] + " " + hashes[1][2] + " X-Receipt: r-1\r\n 201"
		if got := texts(t, b.db, "SELECT "+hexed+", status FROM latchkey_responses"); !slices.Equal(got, []string{want}) {
			t.Errorf("the row is %q, on the page %q", got, want)
		}
	})
}
