package lockui_test

import (
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"

	"github.com/latchkey-go/latchkey/internal/lockertest"
	"github.com/latchkey-go/latchkey/sqllock/lockui"
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
