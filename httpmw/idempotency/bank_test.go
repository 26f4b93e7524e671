package idempotency_test

import (
	"cmp"
	"context"
	"database/sql"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/latchkey-go/latchkey/httpmw"
	"github.com/latchkey-go/latchkey/httpmw/idempotency"
	"github.com/latchkey-go/latchkey/internal/dbtest"
	"github.com/latchkey-go/latchkey/internal/httptesting"
	"github.com/latchkey-go/latchkey/internal/pgtest"
	"github.com/latchkey-go/latchkey/ratelimit"
	"github.com/latchkey-go/latchkey/sqllock"
)

// user is the header with the user of a request. It stands for authentication.
const user = httptesting.User

// A bank is a service with a ledger, and the table of stored responses.
type bank struct {
	t      *testing.T
	driver string
	dsn    string
	db     *sql.DB
	log    httptesting.Logbook
	runs   atomic.Int32 // how often a handler has run
}

// eachBank runs test with both drivers, each with a database of its own.
func eachBank(t *testing.T, test func(t *testing.T, b *bank)) {
	t.Parallel()
	for _, driver := range pgtest.Drivers() {
		t.Run(driver, func(t *testing.T) {
			t.Parallel()
			test(t, newBank(t, driver, pgtest.Database(t)))
		})
	}
}

func oneBank(t *testing.T) *bank { return newBank(t, pgtest.Drivers()[0], pgtest.Database(t)) }

func newBank(t *testing.T, driver, dsn string) *bank {
	t.Helper()
	b := bankWithoutTable(t, driver, dsn)
	for _, statement := range idempotency.Schema(sqllock.PostgreSQL) {
		b.do(statement)
	}
	return b
}

func bankWithoutTable(t *testing.T, driver, dsn string) *bank {
	t.Helper()
	b := &bank{t: t, driver: driver, dsn: dsn, db: dbtest.Open(t, driver, dsn)}
	b.do("CREATE TABLE ledger (note text NOT NULL)")
	return b
}

func (b *bank) do(query string, args ...any) {
	b.t.Helper()
	dbtest.Execute(b.t, b.db, query, args...)
}

// setUp executes statements in one session. In them %s is the name of the
// database. After that the pool has new sessions.
func (b *bank) setUp(statements string) {
	b.t.Helper()
	var name string
	if err := b.db.QueryRow("SELECT current_database()").Scan(&name); err != nil {
		b.t.Fatal(err)
	}
	for statement := range strings.SplitSeq(strings.ReplaceAll(statements, "%s", name), "; ") {
		b.do(statement)
	}
	_ = b.db.Close()
	b.db = dbtest.Open(b.t, b.driver, b.dsn)
}

func (b *bank) number(query string, args ...any) int {
	b.t.Helper()
	return dbtest.Number(b.t, b.db, query, args...)
}

// wantEffects fails the test unless that many effects have been committed.
func (b *bank) wantEffects(want int) {
	b.t.Helper()
	if got := b.number("SELECT count(*) FROM ledger"); got != want {
		b.t.Errorf("%d effects, want %d", got, want)
	}
}

// locks returns a new Session, like that of another instance.
func (b *bank) locks() *sqllock.Session {
	b.t.Helper()
	return dbtest.Session(b.t, b.driver, b.dsn)
}

// once returns a Middleware over locks, for the user of the tests.
func (b *bank) once(locks sqllock.Locker, opts ...idempotency.Option) *idempotency.Middleware {
	return b.onceBy(ratelimit.OneAtATime(locks, "pay"), opts...)
}

func (b *bank) onceBy(l *ratelimit.Limiter, opts ...idempotency.Option) *idempotency.Middleware {
	opts = append([]idempotency.Option{idempotency.WithLogger(b.log.Logger())}, opts...)
	return idempotency.New(b.db, l, httpmw.Header(user), opts...)
}

// away returns a Limiter whose locks are unavailable, and which admits every
// request.
func away(opts ...ratelimit.Option) *ratelimit.Limiter {
	opts = append(opts, ratelimit.WithFailOpen())
	return ratelimit.OneAtATime(httptesting.Failing{Err: sqllock.ErrUnavailable}, "pay", opts...)
}

// shortBounds is for a Middleware that is to reach its bounds on calls to the
// database. Otherwise a test lengthens them, since a busy machine is slow.
func shortBounds() idempotency.Option { return idempotency.WithMaxIdle(59 * time.Second) }

// serve starts an instance with h behind m, on any route.
func (b *bank) serve(m *idempotency.Middleware, h http.Handler) *httptest.Server {
	b.t.Helper()
	mux := http.NewServeMux()
	mux.Handle("/", m.Handler(h))
	mux.Handle("/other", m.Handler(h))
	return httptesting.Serve(b.t, mux)
}

// pay returns a handler that writes the request's body to the ledger, and
// responds with status.
func (b *bank) pay(status int) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		b.record(r)
		w.Header().Set("X-Receipt", "r-1")
		w.Header()["Set-Cookie"] = []string{"session=secret"}
		w.WriteHeader(status)
		if status != http.StatusNoContent {
			_, _ = io.WriteString(w, "paid")
		}
	}
}

// gated returns a handler like pay(200) that g keeps after its effect.
func (b *bank) gated(g *httptesting.Gate) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		b.record(r)
		g.ServeHTTP(w, r)
	}
}

// record writes the body of r to the ledger, in the transaction of its effect.
func (b *bank) record(r *http.Request) {
	b.runs.Add(1)
	note, err := io.ReadAll(r.Body)
	if err != nil {
		b.t.Error(err)
	}
	tx, ok := idempotency.Tx(r.Context())
	if !ok {
		b.t.Error("there is no transaction")
		return
	}
	if _, err := tx.ExecContext(context.WithoutCancel(r.Context()), "INSERT INTO ledger VALUES ($1)", string(note)); err != nil {
		b.t.Error(err)
	}
}

// A demand is a request to a bank, a POST unless it says otherwise.
type demand struct {
	method, key, who, path, body string
	header                       http.Header
	chunked                      bool // the body has no Content-Length
}

// ask sends d and reads the whole response.
func ask(ctx context.Context, s *httptest.Server, d demand) (httptesting.Reply, error) {
	ctx, cancel := context.WithTimeout(ctx, httptesting.Patience)
	defer cancel()
	r, err := http.NewRequestWithContext(ctx, cmp.Or(d.method, http.MethodPost), s.URL+d.path, strings.NewReader(d.body))
	if err != nil {
		return httptesting.Reply{}, err
	}
	if d.chunked {
		r.Body, r.ContentLength, r.GetBody = io.NopCloser(strings.NewReader(d.body)), -1, nil
	}
	maps.Copy(r.Header, d.header)
	r.Header.Set(user, cmp.Or(d.who, "ada"))
	if d.key != "" {
		r.Header.Set("Idempotency-Key", d.key)
	}
	return httptesting.Do(s, r)
}

func mustAsk(t *testing.T, s *httptest.Server, d demand) httptesting.Reply {
	t.Helper()
	r, err := ask(t.Context(), s, d)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// asking sends a demand from another goroutine.
func asking(t *testing.T, s *httptest.Server, d demand) <-chan httptesting.Reply {
	t.Helper()
	c := make(chan httptesting.Reply, 1)
	go func() {
		r, err := ask(t.Context(), s, d)
		if err != nil {
			t.Error(err)
		}
		c <- r
	}()
	return c
}

// serveKey sends r to h as a request of ada with the key k-1, without a server.
func serveKey(h http.Handler, r *http.Request) *httptest.ResponseRecorder {
	r.Header.Set(user, "ada")
	r.Header.Set("Idempotency-Key", "k-1")
	if r.Pattern == "" {
		r.Pattern = "/"
	}
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	return w
}

// isReplay reports whether r was stored before.
func isReplay(r httptesting.Reply) bool { return r.Header.Get("Idempotency-Replayed") == "true" }

// wantReplay fails the test unless r is first, replayed.
func wantReplay(t *testing.T, r, first httptesting.Reply) {
	t.Helper()
	if r.StatusCode != first.StatusCode || r.Text != first.Text {
		t.Errorf("replayed %d %q, want %d %q", r.StatusCode, r.Text, first.StatusCode, first.Text)
	}
	if !isReplay(r) || isReplay(first) {
		t.Errorf("replayed: first %v, then %v", isReplay(first), isReplay(r))
	}
}

// wantLater fails the test unless r has the status of a request that may
// succeed later.
func wantLater(t *testing.T, r httptesting.Reply, status int) {
	t.Helper()
	if r.Want(t, status); r.Header.Get("Retry-After") == "" {
		t.Errorf("%d without Retry-After", status)
	}
}

// wantLog fails the test unless the log holds each of parts, and nothing secret.
func (b *bank) wantLog(parts ...string) {
	b.t.Helper()
	text := b.log.String()
	for _, part := range parts {
		if !strings.Contains(text, part) {
			b.t.Errorf("%q is not in the log:\n%s", part, text)
		}
	}
	for _, secret := range []string{"ada", "k-1", "127.0.0.1", "localhost"} {
		if strings.Contains(text, secret) {
			b.t.Errorf("%q is in the log:\n%s", secret, text)
		}
	}
}
