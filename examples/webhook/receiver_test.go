package main

import (
	"bytes"
	"database/sql"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/latchkey-go/latchkey/internal/dbtest"
	"github.com/latchkey-go/latchkey/internal/lockertest"
	"github.com/latchkey-go/latchkey/internal/pgtest"
	"github.com/latchkey-go/latchkey/ratelimit"
)

var testSecret = []byte("s3cret")

// newTestReceiver is a receiver on a database of its own, with its tables.
func newTestReceiver(t *testing.T) (*receiver, string) {
	t.Helper()
	url := pgtest.Database(t)
	if err := migrate(t.Context(), url); err != nil {
		t.Fatal(err)
	}
	return &receiver{db: pool(t, url), secret: testSecret, maxIdle: time.Minute}, url
}

func pool(t *testing.T, url string) *sql.DB {
	t.Helper()
	db, err := openPool(url, 10)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = db.Close() })
	return db
}

// handler is that of rc, with the locks of another process.
func handler(t *testing.T, rc *receiver, url string) http.Handler {
	t.Helper()
	return rc.handler(dbtest.Session(t, "pgx", url))
}

// post sends h a webhook, signed as secret and at say.
func post(t *testing.T, h http.Handler, body []byte, secret []byte, at time.Time) *httptest.ResponseRecorder {
	t.Helper()
	r := httptest.NewRequest(http.MethodPost, "/webhooks", bytes.NewReader(body))
	r.Header.Set(signatureHeader, sign(secret, body, at))
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	return w
}

func payloadOf(t *testing.T, e event) []byte {
	t.Helper()
	body, err := json.Marshal(e)
	if err != nil {
		t.Fatal(err)
	}
	return body
}

// A request without a good signature reaches neither the effect of the event nor
// its lock.
func TestSignature(t *testing.T) {
	t.Parallel()
	rc, url := newTestReceiver(t)
	h := handler(t, rc, url)
	body := payloadOf(t, event{ID: "evt-1", Account: "a", Amount: 1})
	now := time.Now()
	for name, tt := range map[string]struct {
		body   []byte
		secret []byte
		at     time.Time
		want   int
	}{
		"other secret":   {body, []byte("guessed"), now, http.StatusUnauthorized},
		"too old":        {body, testSecret, now.Add(-tolerance - time.Second), http.StatusUnauthorized},
		"too new":        {body, testSecret, now.Add(tolerance + 2*time.Second), http.StatusUnauthorized},
		"not JSON":       {[]byte("x"), testSecret, now, http.StatusBadRequest},
		"no id":          {[]byte(`{"account":"a","amount":1}`), testSecret, now, http.StatusBadRequest},
		"no amount":      {[]byte(`{"id":"a","account":"a"}`), testSecret, now, http.StatusBadRequest},
		"null amount":    {[]byte(`{"id":"a","account":"a","amount":null}`), testSecret, now, http.StatusBadRequest},
		"huge amount":    {[]byte(`{"id":"a","account":"a","amount":1e30}`), testSecret, now, http.StatusBadRequest},
		"NUL in id":      {[]byte(`{"id":"a\u0000","account":"a","amount":1}`), testSecret, now, http.StatusBadRequest},
		"NUL in account": {[]byte(`{"id":"a","account":"a\u0000","amount":1}`), testSecret, now, http.StatusBadRequest},
		"too large":      {bytes.Repeat([]byte(" "), maxBody+1), testSecret, now, http.StatusRequestEntityTooLarge},
	} {
		if w := post(t, h, tt.body, tt.secret, tt.at); w.Code != tt.want {
			t.Errorf("%s: %d, want %d", name, w.Code, tt.want)
		}
	}
	for _, signature := range []string{"", "t=1", "t=1,v1=zz", "t=x,v1=00", strings.Replace(sign(testSecret, body, now), "t=", "t=1", 1)} {
		if signed(testSecret, body, signature, now) {
			t.Errorf("signature %q is taken", signature)
		}
	}
	if w := post(t, h, body, testSecret, now.Add(-tolerance/2)); w.Code != http.StatusOK {
		t.Errorf("a good one: %d %s", w.Code, w.Body)
	}
	wantEntries(t, rc.db, 1)
}

func wantEntries(t *testing.T, db *sql.DB, want int) {
	t.Helper()
	var n, processed int
	if err := db.QueryRow("SELECT (SELECT count(*) FROM ledger), (SELECT count(*) FROM processed_events)").Scan(&n, &processed); err != nil {
		t.Fatal(err)
	}
	if n != want || processed != want {
		t.Errorf("%d entries and %d events processed, want %d", n, processed, want)
	}
}

// A duplicate in flight is rejected. A later duplicate gets the first response. An
// event with another payload is rejected for good.
func TestDuplicates(t *testing.T) {
	t.Parallel()
	rc, url := newTestReceiver(t)
	h, there := handler(t, rc, url), dbtest.Session(t, "pgx", url)
	e := event{ID: "evt-1", Account: "a", Amount: 1}
	body := payloadOf(t, e)

	inFlight, err := ratelimit.OneAtATime(there, "webhook").Acquire(t.Context(), e.ID) // another process is at it
	if err != nil {
		t.Fatal(err)
	}
	if w := post(t, h, body, testSecret, time.Now()); w.Code != http.StatusConflict || w.Header().Get("Retry-After") == "" {
		t.Errorf("in flight: %d %v, want 409 with Retry-After", w.Code, w.Header())
	}
	wantEntries(t, rc.db, 0)
	if err := inFlight.Unlock(); err != nil {
		t.Fatal(err)
	}
	first, again := post(t, h, body, testSecret, time.Now()), post(t, h, body, testSecret, time.Now())
	if first.Code != http.StatusOK || first.Body.String() != again.Body.String() ||
		first.Header().Get("Webhook-Replayed") != "" || again.Header().Get("Webhook-Replayed") == "" {
		t.Errorf("first %d %s, then %d %s", first.Code, first.Body, again.Code, again.Body)
	}
	e.Amount = 1000
	if w := post(t, h, payloadOf(t, e), testSecret, time.Now()); w.Code != http.StatusUnprocessableEntity {
		t.Errorf("another payload: %d, want 422", w.Code)
	}
	wantEntries(t, rc.db, 1)
}

// With -wait a duplicate waits while the first is at work, and gets the first
// response.
func TestDuplicateWaits(t *testing.T) {
	t.Parallel()
	rc, url := newTestReceiver(t)
	rc.wait = time.Minute
	session := dbtest.Session(t, "pgx", url)
	h := rc.handler(session)
	body := payloadOf(t, event{ID: "evt-1", Account: "a", Amount: 1})
	work, err := rc.db.Begin() // holds the first one up in its effect
	if err != nil {
		t.Fatal(err)
	}
	defer work.Rollback()
	if _, err := work.Exec("LOCK TABLE ledger"); err != nil {
		t.Fatal(err)
	}
	deliver := func() <-chan *httptest.ResponseRecorder {
		answer := make(chan *httptest.ResponseRecorder, 1)
		go func() { answer <- post(t, h, body, testSecret, time.Now()) }()
		return answer
	}
	first := deliver()
	lockertest.Eventually(t, "the first is at work", func() bool {
		var n int
		err := rc.db.QueryRow("SELECT count(*) FROM pg_locks WHERE NOT granted AND relation = 'ledger'::regclass").Scan(&n)
		return err == nil && n == 1
	})
	second := deliver()
	lockertest.Eventually(t, "the duplicate waits", func() bool { return session.Stats().Waiting == 1 })
	if err := work.Rollback(); err != nil {
		t.Fatal(err)
	}
	one, two := <-first, <-second
	if one.Code != http.StatusOK || two.Code != http.StatusOK || one.Body.String() != two.Body.String() ||
		one.Header().Get("Webhook-Replayed") != "" || two.Header().Get("Webhook-Replayed") == "" {
		t.Errorf("first %d %s, the duplicate %d %s", one.Code, one.Body, two.Code, two.Body)
	}
	wantEntries(t, rc.db, 1)
}

// Without the lock the primary key decides, as for a process that was frozen and
// lost the lock. One call does the work, the others get its outcome.
func TestWithoutLock(t *testing.T) {
	t.Parallel()
	rc, _ := newTestReceiver(t)
	rc.work = time.Millisecond
	e, err := parseEvent(payloadOf(t, event{ID: "evt-1", Account: "a", Amount: 1}))
	if err != nil {
		t.Fatal(err)
	}
	var (
		all     sync.WaitGroup
		first   atomic.Int32
		entries sync.Map
	)
	for range 8 {
		all.Go(func() {
			o, err := rc.once(t.Context(), e)
			if err != nil {
				t.Error(err)
			}
			if !o.again {
				first.Add(1)
			}
			entries.Store(o.Entry, true)
		})
	}
	all.Wait()
	n := 0
	entries.Range(func(any, any) bool { n++; return true })
	if first.Load() != 1 || n != 1 {
		t.Errorf("%d did it, with %d entries", first.Load(), n)
	}
	wantEntries(t, rc.db, 1)
}
