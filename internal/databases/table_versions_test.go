package databases

import (
	"database/sql"
	"embed"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/latchkey-go/latchkey/internal/dialect"
	"github.com/latchkey-go/latchkey/internal/lockertest"
	"github.com/latchkey-go/latchkey/internal/pgtest"
	"github.com/latchkey-go/latchkey/sqllock"
	"github.com/latchkey-go/latchkey/sqllock/lockwatch"
	"github.com/latchkey-go/latchkey/sqllock/watermark"
)

// earlier has what the Schema functions of commit 55f5f71 returned.
//
//go:embed testdata/earlier
var earlier embed.FS

// earlierSchema returns the statements of commit 55f5f71.
func earlierSchema(t *testing.T, d sqllock.Dialect) []string {
	t.Helper()
	text, err := earlier.ReadFile("testdata/earlier/" + string(d) + ".sql")
	must(t, err)
	return strings.Split(strings.TrimSuffix(string(text), ";\n"), ";\n")
}

// farToken is greater than each number that a clock gives in this century.
const farToken = 8_000_000_000_000_000

// earlierRows are what an earlier version has left: a lock of a session that
// lives, one of a session that has expired, the counter of tokens, two fences, a
// watermark and a response.
func earlierRows(t *testing.T, k kind, o lockertest.Orders) (rows []string, hasLocks bool) {
	t.Helper()
	d := dialectOf(o)
	system, token, later := "system", "system, 0, "+fmt.Sprint(farToken), "system, 0, "+fmt.Sprint(2*farToken)+" FROM latchkey_tokens"
	token += " FROM latchkey_tokens"
	switch {
	case d == sqllock.MySQL:
		system = "system_id"
		token, later = "system_id, epoch, "+fmt.Sprint(farToken)+" FROM latchkey_tokens", "system_id, epoch + 9, 1 FROM latchkey_tokens"
	case d == sqllock.PostgreSQL && !isUnknownServer(o):
		token = "system_identifier, 1, (pg_current_wal_insert_lsn() - '0/0')::bigint FROM pg_control_system()"
		later = "system_identifier, 9, 1 FROM pg_control_system()"
	}
	rows = []string{
		fmt.Sprintf("UPDATE latchkey_tokens SET number = %d", farToken),
		"INSERT INTO latchkey_fence (key_space, key_id, " + system + ", timeline, lsn) SELECT 0, 43, " + token,
		"INSERT INTO latchkey_fence (key_space, key_id, " + system + ", timeline, lsn) SELECT 0, 44, " + later,
		"INSERT INTO latchkey_watermarks (key_space, key_id, mark) VALUES (1, -4294967295, 100)", // Pair(-1, 1)
	}
	literal := map[sqllock.Dialect]string{sqllock.PostgreSQL: `'\x%s'`, sqllock.SQLite: "x'%s'", sqllock.MySQL: "x'%s'"}[d]
	key := "key"
	if d == sqllock.MySQL {
		key = "`key`"
	}
	rows = append(rows, fmt.Sprintf("INSERT INTO latchkey_responses ("+key+", fingerprint, status, header, body) VALUES ("+
		literal+", "+literal+", 201, "+literal+", "+literal+")",
		"3786ab2566072e37f6b7eddb6faa1a517a7bf641a8f8980fde49893c88da9994", "f79b7474f977be9df7c1e9ac0078805139a6fd78bb7bfe930f9f29ecdf72e1ec",
		"582d526563656970743a20722d310d0a", "70616964")) // X-Receipt: r-1, paid
	if k.locks != leaseRows || d == sqllock.MySQL { // which had no lease tables
		return rows, false
	}
	moments := map[sqllock.Dialect][2]string{
		sqllock.PostgreSQL: {"now() + interval '1 day'", "now() - interval '1 day'"},
		sqllock.SQLite:     {microseconds[d] + " / 1000 + 86400000", microseconds[d] + " / 1000 - 86400000"},
	}[d]
	for i, expires := range moments {
		rows = append(rows,
			fmt.Sprintf("INSERT INTO latchkey_sessions (id, expires, statement, holder) VALUES (%d, %s, 5, 'earlier/1')", 7+i, expires),
			fmt.Sprintf("INSERT INTO latchkey_locks (key_space, key_id, session, acquired) VALUES (0, %d, %d, %s)", 42+i, 7+i, expires))
	}
	return rows, true
}

// content returns all rows of all tables of latchkey.
func content(t *testing.T, db *sql.DB, d sqllock.Dialect) (all []string) {
	t.Helper()
	for _, table := range dialect.TablesOf(earlierSchema(t, d)) {
		all = append(all, table.Name)
		all = append(all, texts(t, db, "SELECT * FROM "+table.Name)...)
	}
	return all
}

// The tables of an earlier version serve this one, and Schema changes none of
// their rows. Locks stay held, tokens and watermarks never go back, and a stored
// response is replayed.
func TestTablesOfAnEarlierVersion(t *testing.T) {
	onEach(t, slices.Concat(kinds, advisoryKinds[:1]), func(t *testing.T, k kind, o lockertest.Orders) {
		d := dialectOf(o)
		db := open(t, o.Driver, o.DSN)
		rows, hasLocks := earlierRows(t, k, o)
		create(t, db, earlierSchema(t, d), rows)
		before := content(t, db, d)
		create(t, db, allSchemas(d), allSchemas(d))
		if after := content(t, db, d); !slices.Equal(after, before) {
			t.Errorf("Schema has changed rows:\n%q\nbefore:\n%q", after, before)
		}

		s := process(t, o)
		if _, err := s.TryLock(t.Context(), sqllock.ID(42)); hasLocks != errors.Is(err, sqllock.ErrHeld) {
			t.Errorf("TryLock of a key that an earlier version may hold: %v", err)
		}
		if got := number(t, db, "SELECT count(*) FROM latchkey_tokens WHERE number >= "+fmt.Sprint(farToken)); got != 1 {
			t.Error("the counter of tokens went back")
		}
		execute(t, db, "CREATE TABLE work (who INTEGER)")
		must(t, fencedWork(t, db, mustLock(t, s, sqllock.ID(43)), 1)) // its token is later than the earlier version's
		if err := fencedWork(t, db, mustLock(t, s, sqllock.ID(44)), 1); !errors.Is(err, sqllock.ErrFenced) {
			t.Errorf("Fence behind a later token: %v, want ErrFenced", err)
		}
		if err := markedWork(t, db, 100); !errors.Is(err, watermark.ErrPassed) {
			t.Errorf("Advance to where the watermark is: %v, want ErrPassed", err)
		}
		if isUnknownServer(o) { // which keeps no responses
			return
		}
		b := newBank(t, d, o.Driver, o.DSN)
		w := post(t.Context(), b.once(sqllock.NewMemory()).Handler(b.pay(http.StatusOK)), "k-1", "10 to bob")
		if wantStatus(t, w, http.StatusCreated); w.Body.String() != "paid" || w.Header().Get("X-Receipt") != "r-1" {
			t.Errorf("the stored response is replayed as %q, %v", w.Body, w.Header())
		}
	})
}

// A demand is a line of a table that this version does not know, and that every
// INSERT must name.
const demand = "(\n	since_a_later_version INTEGER NOT NULL CHECK (since_a_later_version > 0),\n"

// later makes a table anew as a later version does that excludes this one.
func later(t *testing.T, db *sql.DB, schema []string, table string) {
	t.Helper()
	for _, statement := range schema {
		if strings.HasPrefix(statement, "CREATE TABLE IF NOT EXISTS "+table+" (") {
			execute(t, db, "DROP TABLE "+table)
			_, columns, _ := strings.Cut(statement, "\n") // a comment may be behind the bracket
			execute(t, db, "CREATE TABLE "+table+" "+demand+columns)
		}
	}
}

// wantMisfit checks that err says in one sentence that the table is of another
// version.
func wantMisfit(t *testing.T, err error, table string, says ...string) {
	t.Helper()
	for _, part := range append(says, "the table "+table+" is ") {
		if err == nil || !strings.Contains(err.Error(), part) {
			t.Errorf("%v, want %q in it", err, part)
		}
	}
}

const (
	isOlder = "is older than this version, or not its own: it lacks the column "
	isNewer = "is newer than this version: it demands the column since_a_later_version"
)

// Open says which table is of another version, and leaves nothing behind. A
// column of the user's does no harm.
func TestTablesOfAnotherVersion(t *testing.T) {
	eachLeaseTable(t, func(t *testing.T, o lockertest.Orders) {
		d := dialectOf(o)
		db := open(t, o.Driver, o.DSN)
		schema := slices.Concat(sqllock.Schema(d), sqllock.FenceSchema(d))
		all := map[string]string{"latchkey_sessions": "holder", "latchkey_locks": "acquired", "latchkey_tokens": "number"}
		fails := func(table string, says ...string) {
			t.Helper()
			missing := "latchkey_tokens" // which Open would create
			if table == missing {
				missing = "latchkey_locks"
			}
			execute(t, db, "DROP TABLE "+missing)
			before := texts(t, db, columnsQuery[d])
			_, err := sqllock.Open(t.Context(), pool(t, o), o.Options()...)
			if !errors.Is(err, sqllock.ErrConfig) {
				t.Errorf("Open: %v, want ErrConfig", err)
			}
			wantMisfit(t, err, table, says...)
			if after := texts(t, db, columnsQuery[d]); !slices.Equal(after, before) {
				t.Errorf("a failed Open has left behind %q, before there was %q", after, before)
			}
			if n := number(t, db, "SELECT count(*) FROM latchkey_sessions"); n != 0 {
				t.Errorf("a failed Open has left %d sessions behind", n)
			}
		}
		for table, column := range all {
			again := func() {
				for _, made := range dialect.TablesOf(schema) {
					execute(t, db, "DROP TABLE IF EXISTS "+made.Name)
				}
				create(t, db, schema)
			}
			again()
			execute(t, db, "ALTER TABLE "+table+" DROP COLUMN "+column)
			fails(table, isOlder+column, "Schema(")
			again()
			later(t, db, schema, table)
			fails(table, isNewer)
			again()
			execute(t, db, "ALTER TABLE "+table+" ADD COLUMN note INTEGER")
			execute(t, db, "ALTER TABLE "+table+" ADD COLUMN origin INTEGER NOT NULL DEFAULT 1")
			s := process(t, o)
			must(t, justTry(t, s, sqllock.ID(1)))
			must(t, s.Close())
		}
	})
}

// Of a table that a later version has made, an earlier one that still runs gets
// nothing. TiDB enforces no CHECK.
func TestLaterTableUnderASession(t *testing.T) {
	eachLeaseTable(t, func(t *testing.T, o lockertest.Orders) {
		if isTiDB(o) {
			return
		}
		s := process(t, o)
		mustUnlock(t, mustLock(t, s, sqllock.ID(1)))
		later(t, open(t, o.Driver, o.DSN), sqllock.Schema(dialectOf(o)), "latchkey_locks")
		if err := justTry(t, s, sqllock.ID(1)); !errors.Is(err, sqllock.ErrUnavailable) {
			t.Errorf("TryLock in the table of a later version: %v, want ErrUnavailable", err)
		}
	})
}

// The registry and idempotency say the same of their tables.
func TestOtherTablesOfAnotherVersion(t *testing.T) {
	eachBankAndPostgreSQL(t, func(t *testing.T, b *bank) {
		for name, spoil := range map[string]func(){
			isOlder + "status": func() { execute(t, b.db, "ALTER TABLE latchkey_responses DROP COLUMN status") },
			isNewer:            func() { later(t, b.db, allSchemas(b.dialect), "latchkey_responses") },
		} {
			execute(t, b.db, "DROP TABLE latchkey_responses")
			create(t, b.db, allSchemas(b.dialect))
			spoil()
			wantStatus(t, post(t.Context(), b.once(sqllock.NewMemory()).Handler(b.pay(http.StatusOK)), "k-1", "10"), http.StatusInternalServerError)
			b.wantLog("idempotency: the database is not set up: the table latchkey_responses " + name)
		}
		b.wantEffects(0)
	})
	t.Run("registry", func(t *testing.T) {
		t.Parallel()
		o := lockertest.Orders{Driver: "pgx", DSN: pgtest.Database(t)}
		db, schema := open(t, o.Driver, o.DSN), lockwatch.Schema(sqllock.PostgreSQL)
		for _, in := range []string{"", "ops"} {
			if in != "" {
				execute(t, db, "CREATE SCHEMA ops; DROP TABLE latchkey_heartbeats, latchkey_waits")
				o.DSN += "&search_path=ops"
				db = open(t, o.Driver, o.DSN)
			}
			create(t, db, schema)
			later(t, db, schema, "latchkey_waits")
			_, err := sqllock.Open(t.Context(), pool(t, o), sqllock.WithRegistry(in))
			wantMisfit(t, err, "latchkey_waits", isNewer)
			if !errors.Is(err, sqllock.ErrConfig) {
				t.Errorf("Open: %v, want ErrConfig", err)
			}
			execute(t, db, "DROP TABLE latchkey_waits")
			create(t, db, schema)
			execute(t, db, "ALTER TABLE latchkey_heartbeats DROP COLUMN shared")
			_, err = sqllock.Open(t.Context(), pool(t, o), sqllock.WithRegistry(in))
			wantMisfit(t, err, "latchkey_heartbeats", isOlder+"shared", "lockwatch.Schema")
			if n := number(t, db, "SELECT count(*) FROM latchkey_heartbeats"); n != 0 {
				t.Errorf("a failed Open has left %d rows behind", n)
			}
		}
	})
}
