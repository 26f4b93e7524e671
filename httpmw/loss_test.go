package httpmw_test

import (
	"context"
	"errors"
	"net/http"
	"testing"

	"github.com/latchkey-go/latchkey/internal/dbtest"
	"github.com/latchkey-go/latchkey/internal/httptesting"
	"github.com/latchkey-go/latchkey/internal/pgtest"
	"github.com/latchkey-go/latchkey/ratelimit"
	"github.com/latchkey-go/latchkey/sqllock"
)

// When the session's connection ends, the handler's context ends with the
// cause. The handler's response is sent. If it has written none, the response
// is 503. After that the key is free.
func TestLoss(t *testing.T) {
	t.Parallel()
	for path, want := range map[string]int{"/responds": http.StatusTeapot, "/gives-up": http.StatusServiceUnavailable} {
		for _, driver := range pgtest.Drivers() {
			t.Run(driver+path, func(t *testing.T) {
				t.Parallel()
				testLoss(t, driver, path, want)
			})
		}
	}
}

func testLoss(t *testing.T, driver, path string, want int) {
	dsn := pgtest.Database(t)
	lost := make(chan struct{}, 3)
	m := stacked(dbtest.Session(t, driver, dsn),
		ratelimit.WithObserver(func(_ context.Context, e ratelimit.Event) {
			if e.Result == ratelimit.Lost {
				lost <- struct{}{}
			}
		}))
	inside, causes := make(chan struct{}), make(chan error, 1)
	s := httptesting.Serve(t, m.Handler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/" {
			return
		}
		w.Header().Set("Content-Encoding", "gzip")
		w.Header().Set("ETag", `"1"`)
		close(inside)
		<-r.Context().Done()
		causes <- context.Cause(r.Context())
		if want == http.StatusTeapot {
			w.Header().Del("Content-Encoding")
			w.WriteHeader(want)
		}
	})))
	response := start(t, s, s.URL+path)
	httptesting.Receive(t, inside, "request")
	httptesting.Terminate(t, dbtest.Open(t, driver, dsn))
	if cause := httptesting.Receive(t, causes, "handler's context"); !errors.Is(cause, sqllock.ErrLost) {
		t.Errorf("cause %v, want ErrLost", cause)
	}
	for range cap(lost) {
		httptesting.Receive(t, lost, "Observer.Lost")
	}
	r := httptesting.Receive(t, response, "response")
	if r.Want(t, want); want == http.StatusServiceUnavailable {
		wantInterrupted(t, r)
	}
	eventually(t, s, http.StatusOK)
}

// While the database is down, requests are rejected with Retry-After. Once it
// is up again, requests are admitted.
func TestLongDatabaseDown(t *testing.T) {
	t.Parallel()
	cluster := pgtest.New(t)
	locks := dbtest.Session(t, pgtest.Drivers()[0], cluster.DSN(""))
	s := httptesting.Serve(t, limited(locks).Handler(status(http.StatusOK)))
	get(t, s).Want(t, http.StatusOK)
	if err := cluster.Stop(); err != nil {
		t.Fatal(err)
	}
	eventually(t, s, http.StatusServiceUnavailable)
	r := get(t, s)
	if r.Want(t, http.StatusServiceUnavailable); r.Header.Get("Retry-After") == "" {
		t.Error("no Retry-After")
	}
	if err := cluster.StartAgain(); err != nil {
		t.Fatal(err)
	}
	eventually(t, s, http.StatusOK)
}
