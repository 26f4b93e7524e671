package httptesting

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"
)

// A Problem is the body of a rejection (RFC 9457).
type Problem struct {
	Type, Title, Detail string
	Status              int
}

// WantProblem fails the test unless a response is a Problem with status, and
// holds nothing of the request. It returns the Problem.
func WantProblem(tb testing.TB, header http.Header, body string, status int) (p Problem) {
	tb.Helper()
	for name, want := range map[string]string{
		"Content-Type":           "application/problem+json",
		"Cache-Control":          "no-store",
		"X-Content-Type-Options": "nosniff",
	} {
		if got := header.Get(name); got != want {
			tb.Errorf("%s: %q, want %q", name, got, want)
		}
	}
	fields := map[string]any{}
	for _, into := range []any{&p, &fields} {
		if err := json.Unmarshal([]byte(body), into); err != nil {
			tb.Fatalf("%v in %q", err, body)
		}
	}
	if p.Status != status || p.Title == "" || p.Type == "" || p.Detail == "" || len(fields) != 4 {
		tb.Errorf("body %s, want type, title, status %d and detail", body, status)
	}
	if all := fmt.Sprint(header, body); strings.Contains(all, "ada") {
		tb.Errorf("the response holds the key: %s", all)
	}
	return p
}
