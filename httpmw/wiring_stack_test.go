package httpmw_test

import (
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/latchkey-go/latchkey/httpmw"
	"github.com/latchkey-go/latchkey/internal/httptesting"
	"github.com/latchkey-go/latchkey/ratelimit"
	"github.com/latchkey-go/latchkey/sqllock"
)

// A level whose limit is on the road already is reported, whichever it is.
func TestStackReportsTwice(t *testing.T) {
	t.Parallel()
	for at, ns := range three {
		locks := sqllock.NewMemory()
		var levels []httpmw.Level
		for _, ns := range three {
			levels = append(levels, httpmw.Level{Limiter: ratelimit.AtMost(2, locks, ns), Key: constant("ada", nil)})
		}
		var log httptesting.Logbook
		outer := httpmw.New(ratelimit.AtMost(2, locks, three[at]), constant("ada", nil))
		inner := httpmw.NewStack(levels, httpmw.WithLogger(log.Logger()))
		teapot := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusTeapot) })
		w := httptest.NewRecorder()
		put(outer, inner.Handler(teapot)).ServeHTTP(w, request("/export/ada"))
		if w.Code != http.StatusTeapot {
			t.Errorf("%s: status %d", ns, w.Code)
		}
		log.Want(t, string(ns), 1, "level=ERROR", "two places of one limit", "namespace="+string(ns), "limit=2")
	}
}

// One id on two levels of one limit is a request that nothing can admit. It is
// rejected at once, and the log says why. Two ids of one Limiter are two places.
func TestStackOneIDTwice(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		other string
		want  int
		lines int
	}{
		"one id":  {"ada", http.StatusBadRequest, 1},
		"two ids": {"eve", http.StatusOK, 0},
	} {
		l := ratelimit.AtMost(2, sqllock.NewMemory(), "account")
		var log httptesting.Logbook
		m := httpmw.NewStack([]httpmw.Level{
			{Limiter: l, Key: constant("ada", nil)},
			{Limiter: ratelimit.OneAtATime(sqllock.NewMemory(), "user"), Key: constant("ada", nil)},
			{Limiter: l, Key: constant(tt.other, nil)},
		}, httpmw.WithLogger(log.Logger()))
		w := httptest.NewRecorder()
		put(m, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {})).ServeHTTP(w, request("/export/x"))
		if w.Code != tt.want {
			t.Errorf("%s: status %d, want %d", name, w.Code, tt.want)
		}
		if w.Code == http.StatusBadRequest {
			checkProblem(t, w.Result(), w.Code)
		}
		log.Want(t, name, tt.lines, "level=ERROR", "two places of one limit", "namespace=account")
	}
}
