package databases

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/latchkey-go/latchkey/internal/lockertest"
	"github.com/latchkey-go/latchkey/sqllock"
	"github.com/latchkey-go/latchkey/sqllock/lockui"
)

// The page shows the locks of each kind of database, and ends no session of
// MariaDB or of a lease table.
func TestPage(t *testing.T) {
	eachKind(t, func(t *testing.T, k kind, o lockertest.Orders) {
		locks := process(t, o)
		mustLock(t, locks, sqllock.Namespace("export").Key("ada"))
		page := lockui.New(pool(t, o), lockui.WithSession("main", locks), lockui.WithTerminate(func(*http.Request) bool { return true }))
		t.Cleanup(func() { _ = page.Close() })
		pageShows(t, page, locks.Dialect())
		body := pageBody(page, http.MethodGet, "/locks", "")
		if k.locks == leaseRows && (!strings.Contains(body, "lease ") || !strings.Contains(body, "ends in")) || strings.Contains(body, "terminate?") {
			t.Errorf("locks: %s", body)
		}
		if body := pageBody(page, http.MethodPost, "/terminate", "pid=1&start=1"); k.name == "MariaDB" && !strings.Contains(body, "Only sessions of PostgreSQL can be ended here.") {
			t.Errorf("terminate: %s", body)
		}
	})
}

// pageShows checks that page shows one lock, and finds it.
func pageShows(t *testing.T, page *lockui.Handler, d sqllock.Dialect) {
	t.Helper()
	lockertest.Eventually(t, "the lock is on the page", func() bool {
		var seen struct {
			Database struct {
				State   string `json:"state"`
				Dialect string `json:"dialect"`
			} `json:"database"`
			Total int `json:"total"`
		}
		must(t, json.Unmarshal([]byte(pageBody(page, http.MethodGet, "/locks?format=json", "")), &seen))
		return seen.Database.State == "ok" && seen.Database.Dialect == string(d) && seen.Total == 1
	})
	if body := pageBody(page, http.MethodPost, "/search", "namespace=export&id=ada"); !strings.Contains(body, "1 held.") {
		t.Errorf("search: %s", body)
	}
}

// pageBody returns the body of a response to a request from this machine.
func pageBody(page *lockui.Handler, method, target, form string) string {
	r := httptest.NewRequest(method, target, strings.NewReader(form))
	r.RemoteAddr, r.Host = "127.0.0.1:4711", "localhost"
	if form != "" {
		r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	}
	w := httptest.NewRecorder()
	page.ServeHTTP(w, r)
	return w.Body.String()
}
