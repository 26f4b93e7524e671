package main

import (
	"bytes"
	"context"
	"database/sql"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/latchkey-go/latchkey/examples/internal/fleet"
	"github.com/latchkey-go/latchkey/internal/bound"
	"github.com/latchkey-go/latchkey/internal/dbtest"
	"github.com/latchkey-go/latchkey/internal/pgtest"
	"github.com/latchkey-go/latchkey/ratelimit"
)

func TestMain(m *testing.M) {
	bound.Lengthen()
	fleet.Main(main)
	dbtest.Main(m)
}

var testSecret = []byte("s3cret")

// newTestReceiver is a receiver on a database of its own, with its tables, and its
// handler.
func newTestReceiver(t *testing.T) (rc *receiver, h http.Handler, url string) {
	t.Helper()
	url = pgtest.Database(t)
	if err := migrate(t.Context(), url); err != nil {
		t.Fatal(err)
	}
	rc = &receiver{db: dbtest.Open(t, "pgx", url), secret: testSecret, maxIdle: time.Minute}
	return rc, rc.handler(dbtest.Session(t, "pgx", url)), url
}

// signedRequest is a webhook, signed as secret and at say.
func signedRequest(body, secret []byte, at time.Time) *http.Request {
	r := httptest.NewRequest(http.MethodPost, "/webhooks", bytes.NewReader(body))
	r.Header.Set(signatureHeader, sign(secret, body, at))
	return r
}

func post(h http.Handler, body []byte) *httptest.ResponseRecorder {
	w := httptest.NewRecorder()
	h.ServeHTTP(w, signedRequest(body, testSecret, time.Now()))
	return w
}

func replayed(w *httptest.ResponseRecorder) bool { return w.Header().Get("Webhook-Replayed") != "" }

func payload(t *testing.T, id string, amount int64) []byte {
	t.Helper()
	body, err := json.Marshal(event{ID: id, Account: "a", Amount: amount})
	if err != nil {
		t.Fatal(err)
	}
	return body
}

func wantEntries(t *testing.T, db *sql.DB, want int) {
	t.Helper()
	n := dbtest.Number(t, db, "SELECT count(*) FROM ledger")
	processed := dbtest.Number(t, db, "SELECT count(*) FROM processed_events JOIN ledger USING (event_id)")
	if n != want || processed != want {
		t.Errorf("%d entries and %d events processed, want %d", n, processed, want)
	}
}

// A request without a good signature reaches neither the effect of the event nor
// its lock.
func TestSignature(t *testing.T) {
	t.Parallel()
	rc, h, _ := newTestReceiver(t)
	body, now := payload(t, "evt-1", 1), time.Now()
	for name, tt := range map[string]struct {
		body   []byte
		secret []byte
		at     time.Time
		want   int
	}{
		"other secret":   {body, []byte("guessed"), now, http.StatusUnauthorized},
		"too old":        {body, testSecret, now.Add(-tolerance - time.Second), http.StatusUnauthorized},
		"too new":        {body, testSecret, now.Add(tolerance + time.Hour), http.StatusUnauthorized},
		"not JSON":       {[]byte("x"), testSecret, now, http.StatusBadRequest},
		"no id":          {[]byte(`{"account":"a","amount":1}`), testSecret, now, http.StatusBadRequest},
		"no amount":      {[]byte(`{"id":"a","account":"a"}`), testSecret, now, http.StatusBadRequest},
		"huge amount":    {[]byte(`{"id":"a","account":"a","amount":1e30}`), testSecret, now, http.StatusBadRequest},
		"NUL in account": {[]byte(`{"id":"a","account":"a\u0000","amount":1}`), testSecret, now, http.StatusBadRequest},
		"too large":      {bytes.Repeat([]byte(" "), maxBody+1), testSecret, now, http.StatusRequestEntityTooLarge},
	} {
		w := httptest.NewRecorder()
		if h.ServeHTTP(w, signedRequest(tt.body, tt.secret, tt.at)); w.Code != tt.want {
			t.Errorf("%s: %d, want %d", name, w.Code, tt.want)
		}
	}
	for _, signature := range []string{
		"", "t=1", "t=1,v1=zz", "t=x,v1=00",
		strings.Replace(sign(testSecret, body, now), "t=", "t=1", 1),
		sign(testSecret, body, now.Add(tolerance+2*time.Second)),
	} {
		if signed(testSecret, body, signature, now) {
			t.Errorf("signature %q is taken", signature)
		}
	}
	wantEntries(t, rc.db, 0)
}

// A duplicate in flight is rejected. A later duplicate gets the first response. An
// event with another payload is rejected for good. A sender that hangs up in the
// middle does not undo the work.
func TestDuplicates(t *testing.T) {
	t.Parallel()
	rc, h, url := newTestReceiver(t)
	body := payload(t, "evt-1", 1)
	inFlight, err := ratelimit.OneAtATime(dbtest.Session(t, "pgx", url), "webhook").Acquire(t.Context(), "evt-1") // another process is at it
	if err != nil {
		t.Fatal(err)
	}
	if w := post(h, body); w.Code != http.StatusConflict || w.Header().Get("Retry-After") == "" {
		t.Errorf("in flight: %d %v, want 409 with Retry-After", w.Code, w.Header())
	}
	wantEntries(t, rc.db, 0)
	if err := inFlight.Unlock(); err != nil {
		t.Fatal(err)
	}
	first, again := post(h, body), post(h, body)
	if first.Code != http.StatusOK || first.Body.String() != again.Body.String() || replayed(first) || !replayed(again) {
		t.Errorf("first %d %s, then %d %s", first.Code, first.Body, again.Code, again.Body)
	}
	if w := post(h, payload(t, "evt-1", 1000)); w.Code != http.StatusUnprocessableEntity {
		t.Errorf("another payload: %d, want 422", w.Code)
	}
	hungUp := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		ctx, cancel := context.WithCancel(r.Context())
		cancel()
		rc.ServeHTTP(w, r.WithContext(ctx))
	})
	post(verify(testSecret, hungUp), payload(t, "evt-2", 2))
	if w := post(h, payload(t, "evt-2", 2)); !replayed(w) {
		t.Errorf("after a sender has hung up: %d, want it to find the work done", w.Code)
	}
	wantEntries(t, rc.db, 2)
}

// An event that the database can never take is rejected for good, and nothing of it
// is left. Tables that are gone are 503: the sender tries again.
func TestDatabaseRejects(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		statement string
		want      int
	}{
		"at the statement": {"ALTER TABLE ledger ADD CHECK (amount > 0)", http.StatusUnprocessableEntity},
		"at the commit":    {"ALTER TABLE ledger ADD UNIQUE (account) DEFERRABLE INITIALLY DEFERRED", http.StatusUnprocessableEntity},
		"no table":         {"ALTER TABLE processed_events RENAME COLUMN payload_hash TO sum", http.StatusServiceUnavailable},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			rc, h, _ := newTestReceiver(t)
			if w := post(h, payload(t, "evt-1", 1)); w.Code != http.StatusOK {
				t.Errorf("a good event: %d", w.Code)
			}
			dbtest.Execute(t, rc.db, tt.statement)
			if w := post(h, payload(t, "evt-2", 0)); w.Code != tt.want {
				t.Errorf("%d, want %d", w.Code, tt.want)
			}
			wantEntries(t, rc.db, 1)
		})
	}
}
