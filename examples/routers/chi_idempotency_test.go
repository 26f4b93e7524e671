package routers

import (
	"context"
	"database/sql"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"

	"github.com/go-chi/chi/v5"
	_ "modernc.org/sqlite" // the driver "sqlite"; a service uses that of its database

	"github.com/latchkey-go/latchkey/httpmw"
	"github.com/latchkey-go/latchkey/httpmw/idempotency"
	"github.com/latchkey-go/latchkey/ratelimit"
	"github.com/latchkey-go/latchkey/sqllock"
)

// chiRoute returns the method and the pattern that chi has matched. An
// idempotency key counts for one route.
func chiRoute(r *http.Request) (string, error) {
	return r.Method + " " + chi.RouteContext(r.Context()).RoutePattern(), nil
}

// A payment with the header Idempotency-Key takes effect once, however often the
// client sends it. Give the Middleware to With, not to Use: chi has matched the
// pattern by then.
func Example_chi_idempotency() {
	db, done := ledger()
	defer done()
	limit := ratelimit.OneAtATime(sqllock.NewMemory(), "payments") // a service: a sqllock.Session
	payments := idempotency.New(db, limit, httpmw.FromContext(userID), idempotency.WithRoute(chiRoute))

	router := chi.NewRouter()
	router.Use(authenticate)
	router.With(payments.Handler).Post("/accounts/{account}/payments", pay)

	s := httptest.NewServer(router)
	defer s.Close()
	defer http.DefaultClient.CloseIdleConnections()
	for _, body := range []string{"100", "100", "250"} { // a payment, its retry, and another payment with the same key
		postPayment(s.URL+"/accounts/7/payments", "k-1", body)
	}
	var entries int
	if err := db.QueryRow("SELECT count(*) FROM ledger").Scan(&entries); err != nil {
		panic(err)
	}
	fmt.Println("entries in the ledger:", entries)
	// Output:
	// 201, replayed "": paid 100 to account 7
	// 201, replayed "true": paid 100 to account 7
	// 422, replayed ""
	// entries in the ledger: 1
}

// pay does its effect in the transaction of the idempotency key. The response is
// stored in the same transaction.
func pay(w http.ResponseWriter, r *http.Request) {
	amount, err := io.ReadAll(r.Body)
	if err != nil {
		http.Error(w, "the body cannot be read", http.StatusBadRequest)
		return
	}
	account := chi.URLParam(r, "account")
	tx, _ := idempotency.Tx(r.Context())
	if _, err := tx.ExecContext(r.Context(), "INSERT INTO ledger (account, amount) VALUES ($1, $2)", account, amount); err != nil {
		http.Error(w, "try again", http.StatusServiceUnavailable) // rolled back
		return
	}
	w.WriteHeader(http.StatusCreated) // committed
	fmt.Fprintf(w, "paid %s to account %s", amount, account)
}

// ledger returns a temporary database with its tables.
func ledger() (db *sql.DB, done func()) {
	dir, err := os.MkdirTemp("", "routers-")
	if err != nil {
		panic(err)
	}
	db, err = sql.Open("sqlite", "file:"+filepath.ToSlash(filepath.Join(dir, "ledger.db")))
	if err != nil {
		panic(err)
	}
	schema := append(idempotency.Schema(sqllock.SQLite), "CREATE TABLE ledger (account text, amount int)") // once, in a migration
	for _, statement := range schema {
		if _, err := db.ExecContext(context.Background(), statement); err != nil {
			panic(err)
		}
	}
	return db, func() {
		_ = db.Close()
		_ = os.RemoveAll(dir)
	}
}

// postPayment sends a payment and prints the response; of a problem, the status.
func postPayment(url, key, body string) {
	r, err := http.NewRequestWithContext(context.Background(), http.MethodPost, url, strings.NewReader(body))
	if err != nil {
		panic(err)
	}
	r.SetBasicAuth("ada", "")
	r.Header.Set("Idempotency-Key", key)
	resp, err := http.DefaultClient.Do(r)
	if err != nil {
		panic(err)
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		panic(err)
	}
	fmt.Printf("%d, replayed %q", resp.StatusCode, resp.Header.Get("Idempotency-Replayed"))
	if resp.StatusCode == http.StatusCreated {
		fmt.Printf(": %s", text)
	}
	fmt.Println()
}
