package main

import (
	"database/sql"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"testing"

	"github.com/latchkey-go/latchkey/ratelimit"
	"github.com/latchkey-go/latchkey/sqllock"
)

// What an operator looks at shows an export that is held, and not whose it is.
func TestObserve(t *testing.T) {
	db, err := sql.Open("sqlite", "file:"+filepath.Join(t.TempDir(), "locks.db"))
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	session, err := sqllock.Open(t.Context(), db)
	if err != nil {
		t.Fatal(err)
	}
	defer session.Close()
	limit := ratelimit.OneAtATime(session, namespace)
	mux := http.NewServeMux()
	page, err := observe(mux, db, session, limit)
	if err != nil {
		t.Fatal(err)
	}
	defer page.Close()
	lock, err := limit.Acquire(t.Context(), "alice")
	if err != nil {
		t.Fatal(err)
	}

	shows := func(path string, want ...string) {
		t.Helper()
		code, body := get(t, mux, path)
		if code != http.StatusOK || strings.Contains(body, "alice") {
			t.Errorf("%s: %d, or it shows an id:\n%s", path, code, body)
		}
		for _, text := range want {
			if !strings.Contains(body, text) {
				t.Errorf("%s does not show %s:\n%s", path, text, body)
			}
		}
	}
	shows("/locks/", namespace, "admitted 1")
	shows("/locks/locks")
	shows("/metrics", `latchkey_limiter_active_leases{limiter="`+namespace+`"} 1`, `latchkey_session_locks{session="main"} 1`)
	shows("/readyz")
	_, body := get(t, mux, "/debug/vars")
	var vars struct {
		Session sqllock.Stats
		Limiter ratelimit.Stats
	}
	if err := json.Unmarshal([]byte(body), &vars); err != nil || vars.Session.Held != 1 || vars.Limiter.Active != 1 {
		t.Errorf("/debug/vars has %d and %d locks, %v; want one each", vars.Session.Held, vars.Limiter.Active, err)
	}

	if err := lock.Unlock(); err != nil {
		t.Error(err)
	}
	session.Close()
	if code, _ := get(t, mux, "/readyz"); code != http.StatusServiceUnavailable {
		t.Errorf("/readyz is %d without a connection", code)
	}
}

// get sends a request from this machine.
func get(t *testing.T, h http.Handler, path string) (code int, body string) {
	t.Helper()
	r := httptest.NewRequestWithContext(t.Context(), http.MethodGet, "http://localhost"+path, http.NoBody)
	r.RemoteAddr = "127.0.0.1:1024"
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	return w.Code, w.Body.String()
}
