package keys

import (
	"database/sql"
	"encoding/hex"
	"strconv"
	"strings"
	"testing"

	"github.com/lib/pq"

	"github.com/latchkey-go/latchkey/internal/pgtest"
	"github.com/latchkey-go/latchkey/sqllock"
)

// A pageQuery is a query of the page, with the psql variables that it sets
// first.
type pageQuery struct {
	variables []string
	text      string
}

// query returns SQL block i of a section.
func (p keysPage) query(tb testing.TB, section string, i int) pageQuery {
	tb.Helper()
	if i >= len(p[section]["sql"]) {
		tb.Fatalf("section %q has no SQL block %d", section, i)
	}
	var q pageQuery
	for line := range strings.Lines(p[section]["sql"][i]) {
		set, ok := strings.CutPrefix(line, `\set `)
		if !ok {
			q.text += line
			continue
		}
		variable, _, _ := strings.Cut(strings.TrimSpace(set), " ")
		q.variables = append(q.variables, variable)
	}
	q.text = strings.TrimSuffix(q.text, ";")
	return q
}

// with returns the query as psql sends it when its variables have these values.
func (q pageQuery) with(tb testing.TB, values ...string) string {
	tb.Helper()
	if len(values) != len(q.variables) {
		tb.Fatalf("%d values for variables %v", len(values), q.variables)
	}
	var pairs []string
	for i, variable := range q.variables {
		if !strings.Contains(q.text, ":'"+variable+"'") {
			tb.Fatalf("the query does not use %s", variable)
		}
		pairs = append(pairs, ":'"+variable+"'", pq.QuoteLiteral(values[i]))
	}
	return strings.NewReplacer(pairs...).Replace(q.text)
}

// A pageFunction is the place of a scheme's SQL on the page.
type pageFunction struct {
	section string
	block   int
}

// schemesInSQL are the page's functions that have SQL. A slot under a secret
// has the SQL of a name under a secret, with the slot in the namespace: see
// sqlArgs.
var schemesInSQL = map[string]pageFunction{
	"key":            {"Names", 0},
	"join":           {"Names", 1},
	"slot_key":       {"Slots", 0},
	"keyed_key":      {"Names that strangers choose", 1},
	"keyed_slot_key": {"Names that strangers choose", 1},
	"composite_key":  {"Type and id in one bigint", 0},
	"task_key":       {"A service's tasks", 0},
}

var withPgcrypto = pageFunction{"Names that strangers choose", 0}

// sqlArgs returns the call's arguments as a person would type them in psql.
func (c keyCall) sqlArgs() []string {
	var args []string
	for _, arg := range c.args {
		switch arg := arg.(type) {
		case string:
			args = append(args, arg)
		case int64:
			args = append(args, strconv.FormatInt(arg, 10))
		case []byte:
			args = append(args, hex.EncodeToString(arg))
		}
	}
	if c.function == "keyed_slot_key" {
		args = []string{args[0], args[1] + "#" + args[3], args[2]}
	}
	return args
}

// SQL computes the same keys as Go, through both drivers.
func TestKeysPageSQL(t *testing.T) {
	page := readKeysPage(t)
	eachDriver(t, func(t *testing.T, driver, dsn string) {
		db := open(t, driver, dsn)
		pgcrypto := createPgcrypto(t, db)
		var calls []keyCall
		var results []string
		for _, call := range keyCalls() {
			f, ok := schemesInSQL[call.function]
			if !ok {
				continue // a pair has no computation
			}
			calls, results = append(calls, call), append(results, resultInSQL(t, db, page.query(t, f.section, f.block).with(t, call.sqlArgs()...)))
			if f == schemesInSQL["keyed_key"] && pgcrypto {
				query := page.query(t, withPgcrypto.section, withPgcrypto.block)
				calls, results = append(calls, call), append(results, resultInSQL(t, db, query.with(t, call.sqlArgs()...)))
			}
		}
		compareKeys(t, calls, results)
	})
}

// createPgcrypto reports whether the server has the extension. Packages of
// PostgreSQL without contrib lack it.
func createPgcrypto(t *testing.T, db *sql.DB) bool {
	t.Helper()
	if number(t, db, "SELECT count(*) FROM pg_available_extensions WHERE name = 'pgcrypto'") == 0 {
		t.Log("pgcrypto's SQL is not checked here: the server does not have the extension")
		return false
	}
	execute(t, db, "CREATE EXTENSION pgcrypto")
	return true
}

func resultInSQL(t *testing.T, db *sql.DB, query string) string {
	t.Helper()
	var result string
	err := db.QueryRow(query).Scan(&result)
	if stateOf(err) == "22003" {
		return overflow
	}
	if err != nil {
		t.Fatalf("%.300s: %v", query, err)
	}
	return result
}

// A name has the same key in a database of another encoding. There hashtext and
// hashtextextended return another number for it.
func TestKeysPageEncoding(t *testing.T) {
	t.Parallel()
	cluster := pgtest.New(t)
	execute(t, open(t, "pgx", cluster.DSN("")), "CREATE DATABASE latin TEMPLATE template0 ENCODING 'LATIN1' LC_COLLATE 'C' LC_CTYPE 'C'")
	query := readKeysPage(t).query(t, "Names", 0).with(t, "export", "Zoë")
	for _, driver := range pgtest.Drivers() {
		latin := open(t, driver, cluster.DSN("latin")+"&client_encoding=UTF8") // pgx does not request it by default
		unicode := open(t, driver, cluster.DSN(""))
		for _, db := range []*sql.DB{latin, unicode} {
			if got, want := resultInSQL(t, db, query), strconv.FormatInt(sqllock.Namespace("export").Key("Zoë").Int64(), 10); got != want {
				t.Errorf("%s: key %s; Go computes %s", driver, got, want)
			}
		}
		for _, hash := range []string{"hashtext('Zoë')", "hashtextextended('Zoë', 0)"} {
			if resultInSQL(t, latin, "SELECT "+hash) == resultInSQL(t, unicode, "SELECT "+hash) {
				t.Errorf("%s: %s is the same in both encodings, unlike on the page", driver, hash)
			}
		}
	}
}
