package idempotency_test

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/latchkey-go/latchkey/internal/httptesting"
	"github.com/latchkey-go/latchkey/sqllock"
)

// user is the header with the user of a request. It stands for authentication.
const user = httptesting.User

// checkProblem checks that a response is a problem of RFC 9457, and that it
// holds nothing of the request.
func checkProblem(t *testing.T, resp *http.Response, status int) {
	t.Helper()
	for name, want := range map[string]string{
		"Content-Type":           "application/problem+json",
		"Cache-Control":          "no-store",
		"X-Content-Type-Options": "nosniff",
	} {
		if got := resp.Header.Get(name); got != want {
			t.Errorf("%s: %q, want %q", name, got, want)
		}
	}
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	var p map[string]any
	if err := json.Unmarshal(body, &p); err != nil {
		t.Fatalf("%v in %q", err, body)
	}
	if p["status"] != float64(status) || p["title"] == "" || p["type"] == "" || p["detail"] == "" || len(p) != 4 {
		t.Errorf("body %s, want type, title, status %d and detail", body, status)
	}
	if all := fmt.Sprint(resp.Header, string(body)); strings.Contains(all, "ada") {
		t.Errorf("the response holds the key: %s", all)
	}
}

// A locker fails every request with err.
type locker struct{ err error }

func (l locker) TryLock(context.Context, sqllock.Key) (*sqllock.Lock, error) { return nil, l.err }
func (l locker) Lock(context.Context, sqllock.Key) (*sqllock.Lock, error)    { return nil, l.err }
