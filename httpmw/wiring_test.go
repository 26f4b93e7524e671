package httpmw_test

import (
	"fmt"
	"log/slog"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/latchkey-go/latchkey/httpmw"
	"github.com/latchkey-go/latchkey/internal/httptesting"
	"github.com/latchkey-go/latchkey/ratelimit"
	"github.com/latchkey-go/latchkey/sqllock"
)

// put puts m around h, on a mux.
func put(m *httpmw.Middleware, h http.Handler) http.Handler {
	mux := http.NewServeMux()
	mux.Handle("GET /export/{id}", m.Handler(h))
	mux.Handle("GET /other/{id}", m.Handler(h))
	return mux
}

// A route without keys is reported in the log, once a minute.
func TestReportsNoKey(t *testing.T) {
	t.Parallel()
	around := func(m *httpmw.Middleware, h http.Handler) http.Handler { return m.Handler(put(m, h)) }
	tests := []struct {
		name string
		key  httpmw.KeyFunc
		wrap func(*httpmw.Middleware, http.Handler) http.Handler
		want []string
	}{
		{"before authentication", httpmw.FromContext(identity), put, []string{"not in the context", `route="GET /export/{id}"`}},
		{"around the mux", httpmw.PathValue("id"), around, []string{"no path value id"}},
		{"an empty id", empty, put, []string{"no key in the request"}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				var log httptesting.Logbook
				h := tt.wrap(httpmw.New(ratelimit.OneAtATime(sqllock.NewMemory(), "export"), tt.key, httpmw.WithLogger(log.Logger())), http.NotFoundHandler())
				parts := append(tt.want, "level=WARN", "httpmw: a request has no key", "authentication", "namespace=export")
				for range 2 { // minutes
					for range 2 {
						if w := serve(h, request("/export/ada?user=ada")); w.Code != http.StatusBadRequest {
							t.Errorf("status %d, want 400", w.Code)
						}
					}
					log.Want(t, "two requests", 1, parts...)
					time.Sleep(time.Minute)
				}
			})
		})
	}
}

// A request that needs one limit twice is reported in the log. Two Middlewares,
// each with a Limiter of its own, share a limit by its namespace.
func TestReportsTwice(t *testing.T) {
	t.Parallel()
	for at, ns := range three {
		for places, want := range map[int]int{1: http.StatusTooManyRequests, 2: http.StatusTeapot} {
			locks := sqllock.NewMemory()
			var levels []httpmw.Level
			for _, ns := range three {
				levels = append(levels, httpmw.Level{Limiter: ratelimit.AtMost(places, locks, ns), Key: constant("ada", nil)})
			}
			var log httptesting.Logbook
			outer := httpmw.New(ratelimit.AtMost(places, locks, ns), constant("ada", nil), httpmw.WithLogger(log.Logger()))
			between := limited(sqllock.NewMemory()) // of another namespace's locks
			for _, levels := range [][]httpmw.Level{levels, levels[at : at+1]} {
				h := put(outer, between.Handler(httpmw.NewStack(levels, httpmw.WithLogger(log.Logger())).Handler(status(http.StatusTeapot))))
				for range 2 {
					if w := serve(h, request("/export/7", user+": ada")); w.Code != want {
						t.Errorf("%d places of %s: status %d, want %d", places, ns, w.Code, want)
					}
				}
				log.Want(t, "two requests", 1, "level=ERROR", "two places of one limit", "namespace="+string(ns),
					fmt.Sprint("limit=", places), `route="GET /export/{id}"`)
			}
		}
	}
}

// One id on two levels of one limit is a request that nothing can admit. That is
// the server's mistake: the client is not told to correct its request, and the
// log says why. Two ids of one Limiter are two places.
func TestStackOneIDTwice(t *testing.T) {
	t.Parallel()
	for other, want := range map[string]int{"ada": http.StatusInternalServerError, "eve": http.StatusOK} {
		l := ratelimit.AtMost(2, sqllock.NewMemory(), "account")
		var log httptesting.Logbook
		m := httpmw.NewStack([]httpmw.Level{
			{Limiter: l, Key: constant("ada", nil)},
			{Limiter: ratelimit.OneAtATime(sqllock.NewMemory(), "user"), Key: constant("ada", nil)},
			{Limiter: l, Key: constant(other, nil)},
		}, httpmw.WithLogger(log.Logger()))
		w := serve(m.Handler(status(http.StatusOK)), request("/"))
		if w.Code != want {
			t.Errorf("%s: status %d, want %d", other, w.Code, want)
		}
		if other == "eve" {
			log.Want(t, other, 0)
			continue
		}
		p := httptesting.WantProblem(t, w.Header(), w.Body.String(), want)
		if strings.Contains(p.Detail, "Correct the request") || w.Header().Get("Retry-After") != "" {
			t.Errorf("%s, Retry-After %q: it is not the client's mistake", p.Detail, w.Header().Get("Retry-After"))
		}
		log.Want(t, other, 1, "level=ERROR", "two places of one limit", "account")
	}
}

// Without WithLogger reports go to the current default log.
func TestReportsToDefault(t *testing.T) {
	var log httptesting.Logbook
	m := httpmw.New(ratelimit.OneAtATime(sqllock.NewMemory(), "export"), empty)
	before := slog.Default()
	slog.SetDefault(log.Logger())
	t.Cleanup(func() { slog.SetDefault(before) })
	serve(put(m, http.NotFoundHandler()), request("/export/ada"))
	log.Want(t, "the first request", 1, "a request has no key")
}
