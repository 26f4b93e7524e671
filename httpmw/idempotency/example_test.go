package idempotency_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"strings"
	"time"

	"github.com/latchkey-go/latchkey/httpmw"
	"github.com/latchkey-go/latchkey/httpmw/idempotency"
	"github.com/latchkey-go/latchkey/internal/dbtest"
	"github.com/latchkey-go/latchkey/ratelimit"
	"github.com/latchkey-go/latchkey/sqllock"
)

// userKey is where authenticate puts the user.
type userKey struct{}

// userID returns the authenticated user, on which a KeyFunc should be built.
func userID(ctx context.Context) (string, bool) {
	id, ok := ctx.Value(userKey{}).(string)
	return id, ok
}

// authenticate stands for a service's authentication. It puts the verified user
// into the context.
func authenticate(id string, next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		next.ServeHTTP(w, r.WithContext(context.WithValue(r.Context(), userKey{}, id)))
	})
}

// exampleBank returns a temporary database with the tables of the examples.
func exampleBank() (db *sql.DB, done func()) {
	db, done = dbtest.ExampleDatabase()
	for _, ddl := range append(idempotency.Schema(sqllock.PostgreSQL), "CREATE TABLE ledger (amount int)") { // once, in a migration
		if _, err := db.Exec(ddl); err != nil {
			log.Fatal(err)
		}
	}
	return db, done
}

// printPayments prints how many payments are booked.
func printPayments(db *sql.DB) {
	var n int
	if err := db.QueryRow("SELECT count(*) FROM ledger").Scan(&n); err != nil {
		log.Fatal(err)
	}
	fmt.Println("payments:", n)
}

// send sends a payment and prints the response.
func send(h http.Handler, key, body string) {
	r := httptest.NewRequest(http.MethodPost, "/payments", strings.NewReader(body))
	if key != "" {
		r.Header.Set("Idempotency-Key", key)
	}
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	fmt.Print(w.Code, " ", http.StatusText(w.Code))
	if w.Header().Get("Idempotency-Replayed") != "" {
		fmt.Print(", replayed")
	}
	fmt.Println()
}

// Payments are booked once, however often they are sent.
func ExampleNew() {
	db, done := exampleBank()
	defer done()
	locks := sqllock.NewMemory() // a service uses a sqllock.Session
	payments := idempotency.New(db, ratelimit.OneAtATime(locks, "payments"), httpmw.FromContext(userID))

	mux := http.NewServeMux()
	mux.Handle("POST /payments", authenticate("user-1", payments.Handler(http.HandlerFunc(
		func(w http.ResponseWriter, r *http.Request) {
			tx, _ := idempotency.Tx(r.Context())
			if _, err := tx.ExecContext(r.Context(), "INSERT INTO ledger VALUES (10)"); err != nil {
				http.Error(w, "try again", http.StatusServiceUnavailable) // rolled back: the retry is a new try
				return
			}
			w.WriteHeader(http.StatusCreated)
		}))))
	send(mux, `"k-1"`, "10 to bob")
	send(mux, `"k-1"`, "10 to bob")  // the client did not get the response
	send(mux, `"k-1"`, "99 to carl") // a client's bug
	send(mux, "", "10 to bob")

	printPayments(db)
	// Output:
	// 201 Created
	// 201 Created, replayed
	// 422 Unprocessable Entity
	// 400 Bad Request
	// payments: 1
}

// A handler that writes outside of the transaction has its effect again with
// each retry.
func ExampleTx_incorrect() {
	db, done := exampleBank()
	defer done()
	payments := idempotency.New(db, ratelimit.OneAtATime(sqllock.NewMemory(), "payments"), httpmw.FromContext(userID))

	mux := http.NewServeMux()
	mux.Handle("POST /payments", authenticate("user-1", payments.Handler(http.HandlerFunc(
		func(w http.ResponseWriter, r *http.Request) {
			if _, err := db.ExecContext(r.Context(), "INSERT INTO ledger VALUES (10)"); err != nil { // not Tx's
				log.Fatal(err)
			}
			http.Error(w, "the mail server is away", http.StatusServiceUnavailable)
		}))))
	send(mux, "k-1", "10 to bob")
	send(mux, "k-1", "10 to bob")

	printPayments(db)
	// Output:
	// 503 Service Unavailable
	// 503 Service Unavailable
	// payments: 2
}

// Any instance, or all of them, delete old responses from time to time.
func ExampleMiddleware_Forget() {
	db, done := exampleBank()
	defer done()
	payments := idempotency.New(db, ratelimit.OneAtATime(sqllock.NewMemory(), "payments"), httpmw.FromContext(userID))
	fmt.Println(payments.Forget(context.Background(), 24*time.Hour))
	// Output: 0 <nil>
}

// A route for another router, here for a Middleware around the mux.
func ExampleWithRoute() {
	db, done := exampleBank()
	defer done()
	path := idempotency.WithRoute(func(r *http.Request) (string, error) { return r.Method + " " + r.URL.Path, nil })
	once := idempotency.New(db, ratelimit.OneAtATime(sqllock.NewMemory(), "api"), httpmw.FromContext(userID), path)

	mux := http.NewServeMux()
	mux.HandleFunc("POST /payments", func(w http.ResponseWriter, r *http.Request) { w.WriteHeader(http.StatusCreated) })
	send(authenticate("user-1", once.Handler(mux)), "k-1", "10 to bob")
	// Output: 201 Created
}

// Options of httpmw change the responses to rejected requests.
func ExampleWithRejection() {
	db, done := exampleBank()
	defer done()
	locks := sqllock.NewMemory()
	payments := idempotency.New(db, ratelimit.OneAtATime(locks, "payments"), httpmw.FromContext(userID),
		idempotency.WithRejection(httpmw.WithRejectHandler(func(w http.ResponseWriter, _ *http.Request, err error) {
			if errors.Is(err, idempotency.ErrOtherPayload) {
				http.Error(w, "This key belongs to another payment.", http.StatusConflict)
			} // else write nothing, for the Middleware's own response
		})))
	mux := http.NewServeMux()
	mux.Handle("POST /payments", authenticate("user-1", payments.Handler(http.HandlerFunc(
		func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "paid") }))))
	send(mux, "k-1", "10 to bob")
	send(mux, "k-1", "99 to carl")
	// Output:
	// 200 OK
	// 409 Conflict
}

// A webhook's event, whose id is in a header that a signature covers, is the
// key.
func ExampleWithKey() {
	db, done := exampleBank()
	defer done()
	event := idempotency.WithKey(httpmw.Header("Webhook-Event"))
	once := idempotency.New(db, ratelimit.OneAtATime(sqllock.NewMemory(), "webhooks"), httpmw.FromContext(userID), event)

	mux := http.NewServeMux()
	mux.Handle("POST /webhooks", authenticate("provider", once.Handler(http.HandlerFunc( // it checks the signature
		func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusAccepted) }))))
	for range 2 {
		r := httptest.NewRequest(http.MethodPost, "/webhooks", strings.NewReader("10 to bob"))
		r.Header.Set("Webhook-Event", "evt-1")
		w := httptest.NewRecorder()
		mux.ServeHTTP(w, r)
		fmt.Println(w.Code, w.Header().Get("Idempotency-Replayed") == "true")
	}
	// Output:
	// 202 false
	// 202 true
}

// The clients of an API in use begin to send keys one after the other.
func ExampleWithOptionalKey() {
	db, done := exampleBank()
	defer done()
	payments := idempotency.New(db, ratelimit.OneAtATime(sqllock.NewMemory(), "payments"), httpmw.FromContext(userID),
		idempotency.WithOptionalKey())

	book := func(tx *sql.Tx) error {
		_, err := tx.Exec("INSERT INTO ledger VALUES (10)")
		return err
	}
	mux := http.NewServeMux()
	mux.Handle("POST /payments", authenticate("user-1", payments.Handler(http.HandlerFunc(
		func(w http.ResponseWriter, r *http.Request) {
			tx, ok := idempotency.Tx(r.Context())
			var err error
			if ok {
				err = book(tx) // committed with the response
			} else if tx, err = db.BeginTx(r.Context(), nil); err == nil { // no key: as before
				defer tx.Rollback()
				if err = book(tx); err == nil {
					err = tx.Commit()
				}
			}
			if err != nil {
				http.Error(w, "try again", http.StatusServiceUnavailable)
				return
			}
			w.WriteHeader(http.StatusCreated)
		}))))
	send(mux, "", "10 to bob")
	send(mux, "k-1", "10 to bob")
	send(mux, "k-1", "10 to bob")

	printPayments(db)
	// Output:
	// 201 Created
	// 201 Created
	// 201 Created, replayed
	// payments: 2
}

// A handler calls another service, which must not be called again after a
// rejection. So the rejection is stored too.
func ExampleWithStoredErrors() {
	db, done := exampleBank()
	defer done()
	rejections := idempotency.WithStoredErrors(func(status int) bool {
		return status == http.StatusPaymentRequired || status == http.StatusConflict
	})
	payments := idempotency.New(db, ratelimit.OneAtATime(sqllock.NewMemory(), "payments"), httpmw.FromContext(userID), rejections)

	mux := http.NewServeMux()
	mux.Handle("POST /payments", authenticate("user-1", payments.Handler(http.HandlerFunc(
		func(w http.ResponseWriter, r *http.Request) {
			amount, _ := io.ReadAll(r.Body)
			switch string(amount) {
			case "":
				http.Error(w, "an amount is missing", http.StatusUnprocessableEntity)
			default:
				http.Error(w, "the card is blocked", http.StatusConflict)
			}
		}))))
	send(mux, "k-1", "")
	send(mux, "k-1", "10") // corrected: the key is still good
	send(mux, "k-1", "10")
	// Output:
	// 422 Unprocessable Entity
	// 409 Conflict
	// 409 Conflict, replayed
}
