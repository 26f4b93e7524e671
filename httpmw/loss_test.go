package httpmw_test

import (
	"context"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/latchkey-go/latchkey/internal/dbtest"
	"github.com/latchkey-go/latchkey/internal/httptesting"
	"github.com/latchkey-go/latchkey/internal/pgtest"
	"github.com/latchkey-go/latchkey/ratelimit"
	"github.com/latchkey-go/latchkey/sqllock"
)

// eventually sends requests until one gets status.
func eventually(t *testing.T, s *httptest.Server, status int) {
	t.Helper()
	for end := time.Now().Add(httptesting.Patience); ; {
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
	eachStack(t, func(t *testing.T, levels stack) {
		for _, driver := range pgtest.Drivers() {
			t.Run(driver, func(t *testing.T) {
				t.Parallel()
				testLoss(t, levels, driver)
			})
		}
	})
}

func testLoss(t *testing.T, levels stack, driver string) {
	dsn := pgtest.Database(t)
	lost := make(chan time.Duration, len(levels))
	m := levels.over(httptesting.Session(t, dbtest.Open(t, driver, dsn)),
		ratelimit.WithObserver(func(_ context.Context, e ratelimit.Event) {
			if e.Result == ratelimit.Lost {
				lost <- e.Held
			}
		}))
	inside, causes := make(chan struct{}), make(chan error, 1)
	s := httptesting.Serve(t, m.Handler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method != http.MethodPut {
			return
		}
		close(inside)
		<-r.Context().Done()
		causes <- context.Cause(r.Context())
		w.WriteHeader(http.StatusInternalServerError)
	})))
	responses := make(chan httptesting.Reply, 1)
	go func() {
		r, err := fetch(t.Context(), s, http.MethodPut, s.URL, nil)
		if err != nil {
			t.Error(err)
		}
		responses <- r
	}()
	httptesting.Receive(t, inside, "request")
	httptesting.Terminate(t, dbtest.Open(t, driver, dsn))
	if cause := httptesting.Receive(t, causes, "handler's context"); !errors.Is(cause, sqllock.ErrLost) {
		t.Errorf("cause %v, want ErrLost", cause)
	}
	for range levels {
		httptesting.Receive(t, lost, "Observer.Lost")
	}
	httptesting.Receive(t, responses, "response").Want(t, http.StatusInternalServerError)
	eventually(t, s, http.StatusOK)
}

// While the database is down, requests are rejected soon, with Retry-After.
// Once it is up again, requests are admitted.
func TestDatabaseDown(t *testing.T) {
	t.Parallel()
	cluster := pgtest.New(t)
	db := dbtest.Open(t, pgtest.Drivers()[0], cluster.DSN(""))
	s := httptesting.Serve(t, limited(httptesting.Session(t, db)).Handler(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		_, _ = io.WriteString(w, "done")
	})))
	get(t, s).Want(t, http.StatusOK)

	if err := cluster.Stop(); err != nil {
		t.Fatal(err)
	}
	eventually(t, s, http.StatusServiceUnavailable)
	began := time.Now()
	r := get(t, s)
	r.Want(t, http.StatusServiceUnavailable)
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
