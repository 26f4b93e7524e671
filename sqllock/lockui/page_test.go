package lockui_test

import (
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"

	"github.com/latchkey-go/latchkey/internal/dbtest"
	"github.com/latchkey-go/latchkey/internal/lockertest"
	"github.com/latchkey-go/latchkey/ratelimit"
	"github.com/latchkey-go/latchkey/sqllock"
	"github.com/latchkey-go/latchkey/sqllock/lockui"
	"github.com/latchkey-go/latchkey/sqllock/lockwatch"
)

// serve serves a page at the root of a server until the end of the test. It
// returns when the page has seen the database: on a busy machine the first
// response may come before that.
func serve(t *testing.T, page *lockui.Handler) *httptest.Server {
	t.Helper()
	server := httptest.NewServer(page)
	t.Cleanup(func() { _ = page.Close(); server.Close() })
	lockertest.Eventually(t, "the page has seen the database", func() bool {
		_, body := get(t, server.URL+"/locks")
		return strings.Contains(body, "Database: ok.")
	})
	return server
}

// get returns the status and the body of a GET.
func get(t *testing.T, address string) (*http.Response, string) {
	t.Helper()
	response, err := http.Get(address)
	return read(t, response, err)
}

func post(t *testing.T, address string, form url.Values) (*http.Response, string) {
	t.Helper()
	response, err := http.PostForm(address, form)
	return read(t, response, err)
}

func read(t *testing.T, response *http.Response, err error) (*http.Response, string) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	if err != nil {
		t.Fatal(err)
	}
	return response, string(body)
}

// getJSON reads the JSON of a view into v.
func getJSON(t *testing.T, address string, v any) {
	t.Helper()
	request, err := http.NewRequest(http.MethodGet, address, nil)
	if err != nil {
		t.Fatal(err)
	}
	request.Header.Set("Accept", "application/json")
	response, err := http.DefaultClient.Do(request)
	_, body := read(t, response, err)
	if err := json.Unmarshal([]byte(body), v); err != nil {
		t.Fatalf("%v in %s", err, body)
	}
}

func contains(t *testing.T, text string, parts ...string) {
	t.Helper()
	for _, part := range parts {
		if !strings.Contains(text, part) {
			t.Errorf("no %q in\n%s", part, text)
		}
	}
}

// Each view is complete without JavaScript, with both drivers.
func TestViews(t *testing.T) {
	t.Parallel()
	dbtest.EachDriver(t, func(t *testing.T, driver, dsn string) {
		db := dbtest.Open(t, driver, dsn)
		dbtest.Create(t, db, lockwatch.Schema(sqllock.PostgreSQL))
		locks := dbtest.Session(t, driver, dsn, sqllock.WithRegistry("public"))
		lock := dbtest.Lock(t, locks, sqllock.Namespace("export").Key("ada@example.com"))
		defer dbtest.Unlock(t, lock)
		server := serve(t, lockui.New(db, lockui.WithSession("main", locks), lockui.WithLimiter(ratelimit.AtMost(3, locks, "export"))))

		response, body := get(t, server.URL+"/")
		if response.StatusCode != http.StatusOK {
			t.Fatalf("status %d: %s", response.StatusCode, body)
		}
		contains(t, body, "<h1>Overview</h1>", "<h3>main</h3>", "postgres", "export", "Locks held", "Database: ok.")
		_, body = get(t, server.URL+"/locks")
		contains(t, body, "1 held.", "latchkey", "process ")
		for _, path := range []string{"waits", "findings"} {
			if response, body = get(t, server.URL+"/"+path); response.StatusCode != http.StatusOK {
				t.Errorf("%s: status %d: %s", path, response.StatusCode, body)
			}
		}
		response, body = post(t, server.URL+"/search", url.Values{"namespace": {"export"}, "id": {"ada@example.com"}})
		if response.StatusCode != http.StatusOK || strings.Contains(body, "ada") {
			t.Errorf("status %d, or the id is in the result: %s", response.StatusCode, body)
		}
		contains(t, body, "1 held.", "every place of a limit")
		var seen struct {
			Total int `json:"total"`
			Locks []struct {
				Mode string `json:"mode"`
			} `json:"locks"`
		}
		if getJSON(t, server.URL+"/locks", &seen); seen.Total != 1 || len(seen.Locks) != 1 || seen.Locks[0].Mode != "exclusive" {
			t.Errorf("%+v", seen)
		}
	})
}
