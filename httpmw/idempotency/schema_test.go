package idempotency_test

import (
	"net/http"
	"strings"
	"testing"

	"github.com/latchkey-go/latchkey/httpmw/idempotency"
	"github.com/latchkey-go/latchkey/internal/pgtest"
	"github.com/latchkey-go/latchkey/sqllock"
)

// A migration tool may split at semicolons, or take each statement as it is.
func TestSchema(t *testing.T) {
	t.Parallel()
	for _, d := range []sqllock.Dialect{sqllock.PostgreSQL, sqllock.MySQL, sqllock.SQLite} {
		statements := idempotency.Schema(d)
		if len(statements) == 0 {
			t.Errorf("%s has no statement", d)
		}
		for _, statement := range statements {
			if !strings.HasPrefix(statement, "CREATE ") || strings.Contains(statement, ";") {
				t.Errorf("%s: not one statement: %s", d, statement)
			}
		}
	}
	defer func() {
		if text, _ := recover().(string); !strings.HasPrefix(text, "idempotency: ") {
			t.Errorf("another dialect: %q, want a panic that names the package", text)
		}
	}()
	idempotency.Schema("oracle")
}

// Without its table, or with another table of its name, a request has no
// effect, and the log says what to change.
func TestSchemaMissing(t *testing.T) {
	t.Parallel()
	schema := strings.Join(idempotency.Schema(sqllock.PostgreSQL), "; ")
	for _, tt := range []struct{ name, setup, log string }{
		{"missing", "SELECT 1", "idempotency.Schema"},
		{"in another schema", "CREATE SCHEMA other; SET search_path = other; " + schema + "; RESET search_path", "search_path"},
		{"other columns", "CREATE TABLE latchkey_responses (key bytea PRIMARY KEY, print text)", "is not as idempotency.Schema"},
		{"no primary key", "CREATE TABLE latchkey_responses (key bytea, fingerprint bytea)", "is not as idempotency.Schema"},
		{"no rights", schema + "; CREATE ROLE poor_%s; GRANT INSERT ON ledger TO poor_%s; ALTER DATABASE %s SET role = poor_%s", "needs SELECT"},
	} {
		for _, driver := range pgtest.Drivers() {
			t.Run(tt.name+"/"+driver, func(t *testing.T) {
				t.Parallel()
				b := bankWithoutTable(t, driver, pgtest.Database(t))
				b.setUp(tt.setup)
				s := b.serve(b.once(sqllock.NewMemory()), b.pay(http.StatusCreated))
				mustAsk(t, s, demand{key: "k-1"}).Want(t, http.StatusInternalServerError)
				b.wantLog(tt.log)
				b.wantLog("SQLSTATE")
				if b.runs.Load() != 0 {
					t.Error("the handler ran")
				}
			})
		}
	}
}

// The pool's search_path finds the table.
func TestOtherSchema(t *testing.T) {
	eachBank(t, func(t *testing.T, b *bank) {
		b.setUp("CREATE SCHEMA other; ALTER TABLE latchkey_responses SET SCHEMA other; ALTER DATABASE %s SET search_path = public, other")
		s := b.serve(b.once(sqllock.NewMemory()), b.pay(http.StatusCreated))
		first := mustAsk(t, s, demand{key: "k-1"})
		first.Want(t, http.StatusCreated)
		wantReplay(t, mustAsk(t, s, demand{key: "k-1"}), first)
		b.wantEffects(1)
	})
}
