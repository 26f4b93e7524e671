package idempotency_test

import (
	"database/sql"
	"net/http"
	"testing"

	"github.com/latchkey-go/latchkey/httpmw/idempotency"
)

// A handler that ends its transaction itself, or hides that a statement failed,
// is detected, and has no effect twice. So is one that leaves rows open, or a
// setting that prevents storing its response, or breaks a constraint: no retry
// would help.
func TestTxUnusable(t *testing.T) {
	eachBank(t, func(t *testing.T, b *bank) {
		b.setUp(`CREATE ROLE "poor_%s"; CREATE SCHEMA other; CREATE TABLE other.latchkey_responses (); ALTER TABLE ledger ADD UNIQUE (note) DEFERRABLE INITIALLY DEFERRED`)
		var role string
		if err := b.db.QueryRow("SELECT quote_ident('poor_' || current_database())").Scan(&role); err != nil {
			t.Fatal(err)
		}
		defer b.do("DROP ROLE " + role)
		i := b.once(b.locks())
		exec := func(statement string) func(tx *sql.Tx) {
			return func(tx *sql.Tx) { _, _ = tx.ExecContext(t.Context(), statement) }
		}
		b.db.SetMaxOpenConns(1) // a stored error needs no second connection
		const created, refused, fault = http.StatusCreated, http.StatusPaymentRequired, http.StatusInternalServerError
		for _, tt := range []struct {
			key           string
			do            func(tx *sql.Tx) // after the effect
			status        int              // of the handler
			first, second int              // responses
			effects       int
			log           string
		}{
			{"commits", func(tx *sql.Tx) { _ = tx.Commit() }, created, fault, fault, 1, "must not commit"},
			{"rolls-back", func(tx *sql.Tx) { _ = tx.Rollback() }, created, fault, fault, 0, "must not commit"},
			{"hides-an-error", exec("SELECT 1/0"), created, fault, fault, 0, "must not commit"},
			{"rolls-back-by-SQL", exec("ROLLBACK"), created, fault, fault, 0, "must not commit"},
			{"commits-by-SQL", exec("COMMIT"), created, fault, fault, 1, "must not commit"},
			{"leaves-rows-open", func(tx *sql.Tx) {
				rows, err := tx.QueryContext(t.Context(), "SELECT generate_series(1, 100000)") //nolint:sqlclosecheck // that is the bug
				if err != nil || !rows.Next() || rows.Err() != nil {
					t.Errorf("no rows: %v", err)
				}
			}, created, fault, fault, 0, "rows of it are still open"},
			{"breaks-a-constraint-at-the-commit", exec("INSERT INTO ledger VALUES ('')"), created, fault, fault, 0, "23505"},
			{"search_path", exec("SET LOCAL search_path = other, public"), created, created, created, 1, ""},
			{"role", exec("SET LOCAL ROLE " + role), created, fault, fault, 0, "42501"},
			{"read-only", exec("SET TRANSACTION READ ONLY"), created, fault, fault, 0, "25006"},
			{"error-of-a-refusal", exec("SELECT 1/0"), refused, refused, refused, 0, ""},
			{"role-of-a-refusal", exec("SET LOCAL ROLE " + role), refused, refused, refused, 0, ""},
		} {
			b.do("DELETE FROM ledger")
			s := b.serve(i, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				b.record(r)
				tx, _ := idempotency.Tx(r.Context())
				tt.do(tx)
				w.WriteHeader(tt.status)
			}))
			first, second := mustAsk(t, s, demand{key: tt.key}), mustAsk(t, s, demand{key: tt.key})
			if first.StatusCode != tt.first || second.StatusCode != tt.second || isReplay(second) != (tt.first == tt.status) {
				t.Errorf("%s: %d, then %d, replayed: %v; want %d and %d", tt.key, first.StatusCode, second.StatusCode, isReplay(second), tt.first, tt.second)
			}
			b.wantEffects(tt.effects)
			b.wantLog(tt.log)
		}
	})
}
