package idempotency_test

import (
	"database/sql"
	"net/http"
	"testing"

	"github.com/latchkey-go/latchkey/httpmw/idempotency"
	"github.com/latchkey-go/latchkey/internal/httptesting"
	"github.com/latchkey-go/latchkey/internal/lockertest"
	"github.com/latchkey-go/latchkey/sqllock"
)

// A handler that ends its transaction itself, or hides that a statement failed,
// is detected, and has no effect twice.
func TestTxUnusable(t *testing.T) {
	eachBank(t, func(t *testing.T, b *bank) {
		i := b.once(b.locks())
		exec := func(statement string) func(tx *sql.Tx) {
			return func(tx *sql.Tx) { _, _ = tx.ExecContext(t.Context(), statement) }
		}
		for _, tt := range []struct {
			key     string
			misuse  func(tx *sql.Tx)
			effects int
		}{
			{"commits", func(tx *sql.Tx) { _ = tx.Commit() }, 1},
			{"rolls-back", func(tx *sql.Tx) { _ = tx.Rollback() }, 0},
			{"hides-an-error", exec("SELECT 1/0"), 0},
			{"rolls-back-by-SQL", exec("ROLLBACK"), 0},
			{"commits-by-SQL", exec("COMMIT"), 1},
		} {
			b.do("DELETE FROM ledger")
			s := b.serve(i, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				b.record(r)
				tx, _ := idempotency.Tx(r.Context())
				tt.misuse(tx)
				w.WriteHeader(http.StatusCreated)
			}))
			for range 2 {
				mustAsk(t, s, demand{key: tt.key}).Want(t, http.StatusInternalServerError)
			}
			b.wantEffects(tt.effects)
		}
		b.wantLog("must not commit")
	})
}

// If the handler forgets to close rows, its response cannot be stored. There is
// no effect, and the log names the possible cause.
func TestRowsLeftOpen(t *testing.T) {
	eachBank(t, func(t *testing.T, b *bank) {
		s := b.serve(b.once(b.locks()), http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
			b.record(r)
			tx, _ := idempotency.Tx(r.Context())
			rows, err := tx.QueryContext(r.Context(), "SELECT generate_series(1, 100000)") //nolint:sqlclosecheck // that is the bug
			if err != nil || !rows.Next() || rows.Err() != nil {
				t.Errorf("no rows: %v", err)
			}
		}))
		mustAsk(t, s, demand{key: "k-1"}).Want(t, http.StatusServiceUnavailable)
		b.wantEffects(0)
		b.wantLog("left rows of it open")
	})
}

// A stored error is written in the transaction whose effect is rolled back,
// also if that has failed. It needs no second connection, and no other request
// comes between.
func TestStoredError(t *testing.T) {
	eachBank(t, func(t *testing.T, b *bank) {
		b.db.SetMaxOpenConns(1)
		g := httptesting.NewGate(t)
		s := b.serve(b.once(b.locks()), http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			b.record(r)
			tx, _ := idempotency.Tx(r.Context())
			if _, err := tx.ExecContext(r.Context(), "SELECT 1/0"); err == nil {
				t.Error("no error")
			}
			g.Inside <- r
			g.Stay()
			w.WriteHeader(http.StatusPaymentRequired)
		}))
		first := asking(t, s, demand{key: "k-1"})
		httptesting.Receive(t, g.Inside, "first request")
		waiting := make(chan *sql.Conn, 1)
		go func() { // the next waiter for the connection
			conn, err := b.db.Conn(t.Context())
			if err != nil {
				t.Error(err)
			}
			waiting <- conn
		}()
		lockertest.Eventually(t, "a caller waits for a connection", func() bool { return b.db.Stats().WaitCount > 0 })
		close(g.Leave)
		response := httptesting.Receive(t, first, "first response")
		response.Want(t, http.StatusPaymentRequired)
		conn := httptesting.Receive(t, waiting, "connection")
		if err := conn.Close(); err != nil {
			t.Error(err)
		}
		wantReplay(t, mustAsk(t, s, demand{key: "k-1"}), response)
		b.wantEffects(0)
	})
}

// Settings of the handler do not prevent storing its response, or the log says
// why.
func TestHandlerSets(t *testing.T) {
	eachBank(t, func(t *testing.T, b *bank) {
		b.setUp(`CREATE ROLE "poor_%s"; GRANT INSERT ON ledger TO "poor_%s"; CREATE SCHEMA other; CREATE TABLE other.latchkey_responses ()`)
		defer b.do("DROP OWNED BY " + b.role())
		i := b.once(sqllock.NewMemory())
		for _, tt := range []struct {
			key, set    string
			status, got int
			log         string
		}{
			{"search_path", "SET LOCAL search_path = other, public", http.StatusCreated, http.StatusCreated, ""},
			{"role", "SET LOCAL ROLE " + b.role(), http.StatusCreated, http.StatusServiceUnavailable, "SET ROLE"},
			{"role-of-a-refusal", "SET LOCAL ROLE " + b.role(), http.StatusPaymentRequired, http.StatusPaymentRequired, ""},
		} {
			b.do("DELETE FROM ledger")
			s, d := b.serve(i, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				tx, _ := idempotency.Tx(r.Context())
				if _, err := tx.ExecContext(r.Context(), tt.set); err != nil {
					t.Error(err)
				}
				b.record(r)
				w.WriteHeader(tt.status)
			})), demand{key: tt.key}
			first := mustAsk(t, s, d)
			first.Want(t, tt.got)
			if tt.log == "" {
				wantReplay(t, mustAsk(t, s, d), first)
			} else {
				b.wantLog(tt.log)
			}
			b.wantEffects(map[int]int{http.StatusCreated: 1}[tt.got])
		}
	})
}

// role returns the role that setUp has made.
func (b *bank) role() string {
	b.t.Helper()
	var name string
	if err := b.db.QueryRow("SELECT quote_ident('poor_' || current_database())").Scan(&name); err != nil {
		b.t.Fatal(err)
	}
	return name
}

// A constraint that fails at the commit has rolled back everything, and would
// fail again. A retry cannot help.
func TestConstraintAtCommit(t *testing.T) {
	eachBank(t, func(t *testing.T, b *bank) {
		b.do("ALTER TABLE ledger ADD UNIQUE (note) DEFERRABLE INITIALLY DEFERRED")
		s := b.serve(b.once(b.locks()), b.pay(http.StatusCreated))
		mustAsk(t, s, demand{key: "k-0", body: "10 to bob"}).Want(t, http.StatusCreated)
		for range 2 {
			mustAsk(t, s, demand{key: "k-1", body: "10 to bob"}).Want(t, http.StatusInternalServerError)
		}
		b.wantLog("23505")
		b.wantEffects(1)
	})
}

// Options that the driver does not know are a mistake of the setup. The
// database is not away.
func TestUnknownIsolation(t *testing.T) {
	eachBank(t, func(t *testing.T, b *bank) {
		s := b.serve(b.once(b.locks(), idempotency.WithTxOptions(sql.TxOptions{Isolation: sql.LevelLinearizable})), b.pay(http.StatusCreated))
		r := mustAsk(t, s, demand{key: "k-1"})
		r.Want(t, http.StatusInternalServerError)
		if r.Header.Get("Retry-After") != "" {
			t.Error("500 with Retry-After")
		}
		b.wantLog("WithTxOptions")
	})
}
