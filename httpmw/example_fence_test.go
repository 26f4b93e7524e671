package httpmw_test

import (
	"context"
	"database/sql"
	"fmt"
	"log"
	"log/slog"
	"net/http"

	"github.com/latchkey-go/latchkey/httpmw"
	"github.com/latchkey-go/latchkey/internal/dbtest"
	"github.com/latchkey-go/latchkey/ratelimit"
	"github.com/latchkey-go/latchkey/sqllock"
)

// fenced returns a handler that runs behind httpmw. It commits what work writes
// only if no later holder of the lock has written.
func fenced(db *sql.DB, work func(context.Context, *sql.Tx) error) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		if err := inFencedTx(r.Context(), db, work); err != nil {
			slog.Error("a fenced write failed", "error", err)
			w.Header().Set("Retry-After", "1")
			http.Error(w, "The server cannot confirm the write. Try again.", http.StatusServiceUnavailable)
			return // without a response of the handler, the client could get 200
		}
		w.WriteHeader(http.StatusNoContent) // committed
	}
}

func inFencedTx(ctx context.Context, db *sql.DB, work func(context.Context, *sql.Tx) error) error {
	lock, _ := sqllock.FromContext(ctx) // the middleware's
	tx, err := db.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	defer tx.Rollback()
	if err := sqllock.Fence(ctx, tx, lock); err != nil { // before the first read
		return err
	}
	if err := work(ctx, tx); err != nil {
		return err
	}
	return tx.Commit()
}

// A handler reports every error of its fenced transaction, also while its
// context lives.
func ExampleMiddleware_Handler_fence() {
	ctx := context.Background()
	db, locks, done := exampleLedger(ctx)
	defer done()
	payOut := func(ctx context.Context, tx *sql.Tx) error {
		_, err := tx.ExecContext(ctx, "INSERT INTO ledger VALUES (30)")
		return err
	}
	m := httpmw.New(ratelimit.OneAtATime(locks, "payout"), httpmw.FromContext(userID))
	h := authenticate("user-1", m.Handler(fenced(db, payOut)))
	call(h, "/payout")

	// As if this process had been frozen, and a later holder had paid out.
	if _, err := db.ExecContext(ctx, "UPDATE latchkey_fence SET lsn = lsn + 1000000"); err != nil {
		log.Fatal(err)
	}
	call(h, "/payout")
	var n int
	if err := db.QueryRowContext(ctx, "SELECT count(*) FROM ledger").Scan(&n); err != nil {
		log.Fatal(err)
	}
	fmt.Println("payouts:", n)
	// Output:
	// 204 No Content
	// 503 Service Unavailable
	// payouts: 1
}

// A handler that only returns after an error of Fence tells its client that all
// went well.
func ExampleMiddleware_Handler_fenceIncorrect() {
	locks := sqllock.NewMemory() // whose locks cannot be fenced
	m := httpmw.New(ratelimit.OneAtATime(locks, "payout"), httpmw.FromContext(userID))
	payOut := func(_ http.ResponseWriter, r *http.Request) {
		lock, _ := sqllock.FromContext(r.Context())
		if err := sqllock.Fence(r.Context(), nowhere{}, lock); err != nil {
			return // no response
		}
	}
	call(authenticate("user-1", m.Handler(http.HandlerFunc(payOut))), "/payout")
	// Output: 200 OK
}

// nowhere is a transaction without a database.
type nowhere struct{}

func (nowhere) ExecContext(context.Context, string, ...any) (sql.Result, error) {
	return nil, sql.ErrTxDone
}
func (nowhere) Commit() error   { return sql.ErrTxDone }
func (nowhere) Rollback() error { return nil }

// exampleLedger returns a temporary database with the tables of the example, and
// a Session on it.
func exampleLedger(ctx context.Context) (db *sql.DB, locks *sqllock.Session, done func()) {
	db, drop := dbtest.ExampleDatabase()
	for _, ddl := range append(sqllock.FenceSchema(sqllock.PostgreSQL), "CREATE TABLE ledger (amount int)") { // once, in a migration
		if _, err := db.ExecContext(ctx, ddl); err != nil {
			log.Fatal(err)
		}
	}
	locks, err := sqllock.Open(ctx, db)
	if err != nil {
		log.Fatal(err)
	}
	return db, locks, func() {
		_ = locks.Close()
		drop()
	}
}
