package main

import (
	"io"
	"net/http"
	"net/http/httptest"
	"strconv"
	"testing"
)

// A page is in words for the command. A response that declares its length, such
// as a style sheet, stays as it is.
func TestInWords(t *testing.T) {
	t.Parallel()
	const text = "pass WithLeaseTable()"
	for path, want := range map[string]string{"/": "pass --lease-table", "/style": text} {
		r := httptest.NewRecorder()
		inWords(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if r.URL.Path == "/style" {
				w.Header().Set("Content-Length", strconv.Itoa(len(text)))
			}
			if n, err := io.WriteString(w, text); n != len(text) || err != nil {
				t.Errorf("%s: wrote %d, %v", path, n, err)
			}
		})).ServeHTTP(r, httptest.NewRequest(http.MethodGet, path, nil))
		if got := r.Body.String(); got != want {
			t.Errorf("%s: %q, want %q", path, got, want)
		}
	}
}
