package databases

import (
	"context"
	"database/sql"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/latchkey-go/latchkey/httpmw/idempotency"
	"github.com/latchkey-go/latchkey/internal/httptesting"
	"github.com/latchkey-go/latchkey/internal/mariadbtest"
	"github.com/latchkey-go/latchkey/internal/pgtest"
	"github.com/latchkey-go/latchkey/ratelimit"
	"github.com/latchkey-go/latchkey/sqllock"
)

// A bank is a service that books each request of a key once: a debit and a
// credit.
type bank struct {
	t       *testing.T
	dialect sqllock.Dialect
	driver  string
	dsn     string
	db      *sql.DB
	log     httptesting.Logbook
	runs    atomic.Int32 // of the handler

	leaseTable bool // of its Sessions
}

// bankDatabases are databases that can keep an idempotency table.
// The tests of package idempotency run on PostgreSQL.
var bankDatabases = map[string]func(t *testing.T) *bank{
	"MariaDB": func(t *testing.T) *bank { return newBank(t, sqllock.MySQL, "mysql", mariadbtest.Database(t)) },
	"TiDB": func(t *testing.T) *bank {
		b := newBank(t, sqllock.MySQL, "mysql", tidb(t).DSN)
		b.leaseTable = true
		return b
	},
	"SQLite": func(t *testing.T) *bank { return newBank(t, sqllock.SQLite, "sqlite", file(t)) },
	"SQLite, WAL": func(t *testing.T) *bank {
		return newBank(t, sqllock.SQLite, "sqlite", file(t)+"&_pragma=journal_mode(WAL)")
	},
}

// eachBank runs test on a fresh database of each kind, with the tables.
func eachBank(t *testing.T, test func(t *testing.T, b *bank)) {
	t.Helper()
	t.Parallel()
	for name, open := range bankDatabases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			test(t, open(t))
		})
	}
}

// eachBankAndPostgreSQL is eachBank, and runs test on PostgreSQL, too.
func eachBankAndPostgreSQL(t *testing.T, test func(t *testing.T, b *bank)) {
	t.Helper()
	eachBank(t, test)
	t.Run("PostgreSQL", func(t *testing.T) {
		t.Parallel()
		test(t, newBank(t, sqllock.PostgreSQL, "pgx", pgtest.Database(t)))
	})
}

func newBank(t *testing.T, d sqllock.Dialect, driver, dsn string) *bank {
	t.Helper()
	b := &bank{t: t, dialect: d, driver: driver, dsn: dsn, db: open(t, driver, dsn)}
	engine := ""
	if d == sqllock.MySQL {
		engine = " ENGINE = InnoDB"
	}
	execute(t, b.db, "CREATE TABLE ledger (account VARCHAR(20) NOT NULL, note VARCHAR(200) NOT NULL)"+engine)
	create(t, b.db, idempotency.Schema(d), idempotency.Schema(d)) // the statements can be repeated
	return b
}

// once returns the middleware of one instance of the service.
func (b *bank) once(locks sqllock.Locker, opts ...idempotency.Option) *idempotency.Middleware {
	return b.onceBy(ratelimit.OneAtATime(locks, "pay"), opts...)
}

// unlocked is once with locks that are unavailable, so that all requests are
// admitted.
func (b *bank) unlocked(opts ...idempotency.Option) *idempotency.Middleware {
	away := httptesting.Failing{Err: sqllock.ErrUnavailable}
	return b.onceBy(ratelimit.OneAtATime(away, "pay", ratelimit.WithFailOpen()), opts...)
}

func (b *bank) onceBy(l *ratelimit.Limiter, opts ...idempotency.Option) *idempotency.Middleware {
	opts = append([]idempotency.Option{idempotency.WithLogger(b.log.Logger())}, opts...)
	return idempotency.New(b.db, l, func(*http.Request) (string, error) { return "ada", nil }, opts...)
}

// post sends a request to h, as a client would that reads the whole response.
func post(ctx context.Context, h http.Handler, key, body string) *httptest.ResponseRecorder {
	mux := http.NewServeMux()
	mux.Handle("POST /", h)
	r := httptest.NewRequestWithContext(ctx, http.MethodPost, "/", strings.NewReader(body))
	r.Header.Set("Idempotency-Key", key)
	w := httptest.NewRecorder()
	mux.ServeHTTP(w, r)
	return w
}

// posting is post in another goroutine.
func posting(t *testing.T, h http.Handler, key, body string) <-chan *httptest.ResponseRecorder {
	t.Helper()
	c := make(chan *httptest.ResponseRecorder, 1)
	go func() { c <- post(t.Context(), h, key, body) }()
	return c
}

// pay returns a handler that books what it is sent, and responds with status.
func (b *bank) pay(status int) http.Handler {
	return b.then(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("X-Receipt", "r-1")
		w.WriteHeader(status)
		_, _ = io.WriteString(w, "paid\x00\xff")
	})
}

// then returns a handler that books what it is sent, and calls next.
func (b *bank) then(next http.HandlerFunc) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if err := b.book(r); err != nil {
			b.t.Errorf("book: %v", err)
		}
		next(w, r)
	})
}

// book books a debit and a credit in the transaction of the effect. It returns
// at the first error.
func (b *bank) book(r *http.Request) error {
	b.runs.Add(1)
	note, err := io.ReadAll(r.Body)
	if err != nil {
		return err
	}
	tx, ok := idempotency.Tx(r.Context())
	if !ok {
		return fmt.Errorf("there is no transaction")
	}
	for _, account := range []string{"debit", "credit"} {
		if _, err := tx.ExecContext(r.Context(), fmt.Sprintf("INSERT INTO ledger VALUES ('%s', '%s')", account, note)); err != nil {
			return err
		}
	}
	return nil
}

// wantEffects checks that want effects have been committed, each of them
// completely.
func (b *bank) wantEffects(want int) {
	b.t.Helper()
	for _, account := range []string{"debit", "credit"} {
		if got := number(b.t, b.db, "SELECT count(*) FROM ledger WHERE account = '"+account+"'"); got != want {
			b.t.Errorf("%d rows of %s, want %d", got, account, want)
		}
	}
}

// wantLog checks that the log contains part.
func (b *bank) wantLog(part string) {
	b.t.Helper()
	if text := b.log.String(); !strings.Contains(text, part) {
		b.t.Errorf("%q is not in the log:\n%s", part, text)
	}
}

func wantStatus(t *testing.T, w *httptest.ResponseRecorder, want int) {
	t.Helper()
	if w.Code != want {
		t.Errorf("status %d, want %d: %s", w.Code, want, w.Body)
	}
}

// wantReplay checks that w replays first.
func wantReplay(t *testing.T, w, first *httptest.ResponseRecorder) {
	t.Helper()
	if w.Code != first.Code || w.Body.String() != first.Body.String() || w.Header().Get("X-Receipt") != first.Header().Get("X-Receipt") {
		t.Errorf("replayed %d %v %q, want %d %v %q", w.Code, w.Header(), w.Body, first.Code, first.Header(), first.Body)
	}
	if w.Header().Get("Idempotency-Replayed") != "true" {
		t.Error("the response is not a replay")
	}
}
