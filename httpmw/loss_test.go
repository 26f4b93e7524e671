package httpmw_test

import (
	"context"
	"database/sql"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/latchkey-go/latchkey/httpmw"
	"github.com/latchkey-go/latchkey/internal/pgtest"
	"github.com/latchkey-go/latchkey/ratelimit"
	"github.com/latchkey-go/latchkey/sqllock"
)

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

// eventually sends requests until one gets status.
func eventually(t *testing.T, s *httptest.Server, status int) {
	t.Helper()
	for end := time.Now().Add(patience); ; {
		r := get(t, s)
		if r.StatusCode == status {
			return
		}
		if time.Now().After(end) {
			t.Fatalf("still status %d, want %d", r.StatusCode, status)
		}
	}
}

// When the session's connection ends, the handler's context ends with the
// cause.
func TestLossEndsTheHandlersContext(t *testing.T) {
	t.Parallel()
	for _, driver := range pgtest.Drivers() {
		t.Run(driver, func(t *testing.T) {
			t.Parallel()
			dsn := pgtest.Database(t)
			lost := make(chan time.Duration, 1)
			l := ratelimit.OneAtATime(openSession(t, openDB(t, driver, dsn)), "export",
				ratelimit.WithObserver(func(_ context.Context, e ratelimit.Event) {
					if e.Result == ratelimit.Lost {
						lost <- e.Held
					}
				}))
			inside, causes := make(chan struct{}), make(chan error, 1)
			s := serve(t, httpmw.New(l, httpmw.Header(user)).Handler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				if r.Method != http.MethodPut {
					return
				}
				close(inside)
				<-r.Context().Done()
				causes <- context.Cause(r.Context())
				w.WriteHeader(http.StatusInternalServerError)
			})))
			responses := make(chan reply, 1)
			go func() {
				r, err := fetch(t.Context(), s, http.MethodPut, s.URL, nil)
				if err != nil {
					t.Error(err)
				}
				responses <- r
			}()
			receive(t, inside, "request")
			terminate(t, openDB(t, driver, dsn))
			if cause := receive(t, causes, "handler's context"); !errors.Is(cause, sqllock.ErrLost) {
				t.Errorf("cause %v, want ErrLost", cause)
			}
			receive(t, lost, "Observer.Lost")
			receive(t, responses, "response").want(t, http.StatusInternalServerError)
			eventually(t, s, http.StatusOK)
		})
	}
}

// While the database is down, requests are rejected soon, with Retry-After.
// Once it is up again, requests are admitted.
func TestDatabaseDown(t *testing.T) {
	t.Parallel()
	cluster := pgtest.New(t)
	db := openDB(t, pgtest.Drivers()[0], cluster.DSN(""))
	s := serve(t, limited(openSession(t, db)).Handler(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		_, _ = io.WriteString(w, "done")
	})))
	get(t, s).want(t, http.StatusOK)

	if err := cluster.Stop(); err != nil {
		t.Fatal(err)
	}
	eventually(t, s, http.StatusServiceUnavailable)
	began := time.Now()
	r := get(t, s)
	r.want(t, http.StatusServiceUnavailable)
	if r.Header.Get("Retry-After") == "" {
		t.Error("no Retry-After")
	}
	if took := time.Since(began); took > 5*time.Second {
		t.Errorf("the rejection took %v", took)
	}
	if err := cluster.StartAgain(); err != nil {
		t.Fatal(err)
	}
	eventually(t, s, http.StatusOK)
}
