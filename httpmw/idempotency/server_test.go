package idempotency_test

import (
	"context"
	"database/sql"
	"encoding/json"
	"fmt"
	"io"
	"log"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/latchkey-go/latchkey/sqllock"
)

// patience bounds what a test waits for; it is never waited out if all is well.
const patience = 20 * time.Second

// user is the header with the user of a request. It stands for authentication.
const user = "X-Test-User"

// A protocol is a way to talk to a server.
type protocol struct {
	name  string
	major int
}

var protocols = []protocol{{"HTTP/1.1", 1}, {"HTTP/2", 2}}

// serve starts a server on a socket. Its log, mostly of panics, is discarded.
func (p protocol) serve(t *testing.T, h http.Handler) *httptest.Server {
	t.Helper()
	s := httptest.NewUnstartedServer(h)
	s.Config.ErrorLog = log.New(io.Discard, "", 0)
	if p.major == 2 {
		s.EnableHTTP2 = true
		s.StartTLS()
	} else {
		s.Start()
	}
	t.Cleanup(s.Close)
	return s
}

func serve(t *testing.T, h http.Handler) *httptest.Server {
	t.Helper()
	return protocols[0].serve(t, h)
}

// A reply is a response with its whole body.
type reply struct {
	*http.Response
	text string
}

// want fails the test unless r has status.
func (r reply) want(t *testing.T, status int) {
	t.Helper()
	if r.StatusCode != status {
		t.Fatalf("status %d, want %d: %s", r.StatusCode, status, strings.TrimSpace(r.text))
	}
}

// receive returns the next value of c. The test fails if none comes.
func receive[T any](t *testing.T, c <-chan T, what string) T {
	t.Helper()
	select {
	case v := <-c:
		return v
	case <-time.After(patience):
		t.Fatalf("%s: nothing has come", what)
		panic("not reached")
	}
}

// A gate is a handler that reports each request and keeps it until it may
// leave.
type gate struct {
	inside chan *http.Request // gets each request that enters
	leave  chan struct{}      // each token, or its closing, lets go
	test   context.Context
}

func newGate(t *testing.T) *gate {
	return &gate{inside: make(chan *http.Request, 100), leave: make(chan struct{}), test: t.Context()}
}

func (g *gate) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	g.inside <- r
	stay(g.test, g.leave)
	_, _ = io.WriteString(w, "done")
}

// stay waits for leave, or for the end of a test that has failed. Otherwise its
// server could not be closed.
func stay(test context.Context, leave <-chan struct{}) {
	select {
	case <-leave:
	case <-test.Done():
	}
}

func openDB(t *testing.T, driver, dsn string) *sql.DB {
	t.Helper()
	db, err := sql.Open(driver, dsn)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = db.Close() })
	return db
}

func openSession(t *testing.T, db *sql.DB) *sqllock.Session {
	t.Helper()
	s, err := sqllock.Open(t.Context(), db, sqllock.WithLogger(slog.New(slog.DiscardHandler)))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() })
	return s
}

// terminate ends the server processes of the Sessions in db's database.
func terminate(t *testing.T, db *sql.DB) {
	t.Helper()
	var n int
	err := db.QueryRow(`SELECT count(*) FILTER (WHERE pg_terminate_backend(pid)) FROM pg_stat_activity
		WHERE datname = current_database() AND application_name LIKE '%latchkey%'`).Scan(&n)
	if err != nil || n == 0 {
		t.Fatalf("terminated %d sessions, %v", n, err)
	}
}

// checkProblem checks that a response is a problem of RFC 9457, and that it
// holds nothing of the request.
func checkProblem(t *testing.T, resp *http.Response, status int) {
	t.Helper()
	for name, want := range map[string]string{
		"Content-Type":           "application/problem+json",
		"Cache-Control":          "no-store",
		"X-Content-Type-Options": "nosniff",
	} {
		if got := resp.Header.Get(name); got != want {
			t.Errorf("%s: %q, want %q", name, got, want)
		}
	}
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	var p map[string]any
	if err := json.Unmarshal(body, &p); err != nil {
		t.Fatalf("%v in %q", err, body)
	}
	if p["status"] != float64(status) || p["title"] == "" || p["type"] == "" || p["detail"] == "" || len(p) != 4 {
		t.Errorf("body %s, want type, title, status %d and detail", body, status)
	}
	if all := fmt.Sprint(resp.Header, string(body)); strings.Contains(all, "ada") {
		t.Errorf("the response holds the key: %s", all)
	}
}

// A locker fails every request with err.
type locker struct{ err error }

func (l locker) TryLock(context.Context, sqllock.Key) (*sqllock.Lock, error) { return nil, l.err }
func (l locker) Lock(context.Context, sqllock.Key) (*sqllock.Lock, error)    { return nil, l.err }
