package idempotency_test

import (
	"errors"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/latchkey-go/latchkey/httpmw"
	"github.com/latchkey-go/latchkey/httpmw/idempotency"
	"github.com/latchkey-go/latchkey/internal/httptesting"
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
	httptesting.WantPanic(t, "idempotency", "oracle", func() { idempotency.Schema("oracle") })
}

// Without its table, or with one that has no key, a request has no effect, and
// the log says what to change. The reject handler gets the SQLSTATE of the
// server's error, and not its text.
func TestSchemaMissing(t *testing.T) {
	schema := strings.Join(idempotency.Schema(sqllock.PostgreSQL), "; ")
	eachBank(t, func(t *testing.T, b *bank) {
		for _, tt := range []struct{ name, setup, state string }{
			{"missing", "SELECT 1", "42P01"},
			{"in another schema", "CREATE SCHEMA other; SET search_path = other; " + schema + "; RESET search_path", "42P01"},
			{"no primary key", schema + "; ALTER TABLE latchkey_responses DROP CONSTRAINT latchkey_responses_pkey", "42P10"},
			{"no rights", schema + "; CREATE ROLE poor_%s; GRANT INSERT ON ledger TO poor_%s; ALTER DATABASE %s SET role = poor_%s", "42501"},
		} {
			b.setUp("DROP TABLE IF EXISTS latchkey_responses; " + tt.setup)
			errs := make(chan error, 1)
			seen := httpmw.WithRejectHandler(func(_ http.ResponseWriter, _ *http.Request, err error) { errs <- err })
			s := b.serve(b.once(sqllock.NewMemory(), idempotency.WithRejection(seen)), b.pay(http.StatusCreated))
			mustAsk(t, s, demand{key: "k-1"}).Want(t, http.StatusInternalServerError)
			b.wantLog("idempotency.Schema", "search_path", "SELECT", "SQLSTATE "+tt.state)
			err := httptesting.Receive(t, errs, "error")
			var server interface{ SQLState() string }
			if !errors.As(err, &server) || server.SQLState() != tt.state || strings.Contains(err.Error(), "does not exist") {
				t.Errorf("%s: the reject handler gets %v, want SQLSTATE %s", tt.name, err, tt.state)
			}
		}
		if b.runs.Load() != 0 {
			t.Error("the handler ran")
		}
	})
}

// The table may be in any schema of the pool's search_path.
func TestOtherSchema(t *testing.T) {
	t.Parallel()
	b := oneBank(t)
	b.setUp(`CREATE SCHEMA "Other.one"; ALTER TABLE latchkey_responses SET SCHEMA "Other.one"; ALTER DATABASE %s SET search_path = public, "Other.one"`)
	s := b.serve(b.once(sqllock.NewMemory()), b.pay(http.StatusCreated))
	first := mustAsk(t, s, demand{key: "k-1"})
	first.Want(t, http.StatusCreated)
	wantReplay(t, mustAsk(t, s, demand{key: "k-1"}), first)
	b.wantEffects(1)
}

// The handler does not see the settings of the claim: lock_timeout is as
// before. It sees that of WithMaxIdle, but a stricter idle time of the database
// stays.
func TestSettings(t *testing.T) {
	eachBank(t, func(t *testing.T, b *bank) {
		for name, tt := range map[string]struct {
			set     string
			maxIdle time.Duration
			want    string
		}{
			"default":  {"SELECT 1", time.Minute, "0 1min"},
			"short":    {"SELECT 1", 59 * time.Second, "0 59s"},
			"long":     {"SELECT 1", 24 * 24 * time.Hour, "0 24d"},
			"looser":   {"ALTER DATABASE %s SET idle_in_transaction_session_timeout = '2h'; ALTER DATABASE %s SET lock_timeout = '7s'", time.Minute, "7s 1min"},
			"stricter": {"ALTER DATABASE %s SET idle_in_transaction_session_timeout = '30s'", time.Minute, "0 30s"},
		} {
			b.setUp("ALTER DATABASE %s RESET ALL; " + tt.set)
			s := b.serve(b.once(sqllock.NewMemory(), idempotency.WithMaxIdle(tt.maxIdle)), http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				var settings string
				tx, _ := idempotency.Tx(r.Context())
				if err := tx.QueryRowContext(r.Context(), `SELECT current_setting('lock_timeout') || ' ' ||
					current_setting('idle_in_transaction_session_timeout')`).Scan(&settings); err != nil {
					t.Error(err)
				}
				_, _ = io.WriteString(w, settings)
			}))
			if got := mustAsk(t, s, demand{key: "k-" + name}).Text; got != tt.want {
				t.Errorf("%s: settings %q, want %q", name, got, tt.want)
			}
		}
	})
}
