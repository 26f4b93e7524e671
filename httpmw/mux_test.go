package httpmw_test

import (
	"io"
	"net/http"
	"testing"

	"github.com/latchkey-go/latchkey/httpmw"
	"github.com/latchkey-go/latchkey/ratelimit"
	"github.com/latchkey-go/latchkey/sqllock"
)

// A mux sets path values for the handler of the pattern. Inside of it there is
// a key. Around it there is none, and the first request fails.
func TestPathValueAndMux(t *testing.T) {
	t.Parallel()
	l := ratelimit.OneAtATime(sqllock.NewMemory(), "report")
	m := httpmw.New(l, httpmw.PathValue("id"))
	report := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { _, _ = io.WriteString(w, r.PathValue("id")) })

	inside := http.NewServeMux()
	inside.Handle("GET /reports/{id}", m.Handler(report))
	around := http.NewServeMux()
	around.Handle("GET /reports/{id}", report)
	nested := http.NewServeMux()
	nested.Handle("/v1/", http.StripPrefix("/v1", inside))

	tests := []struct {
		name, path string
		h          http.Handler
		want       int
		text       string
	}{
		{"inside", "/reports/7", inside, http.StatusOK, "7"},
		{"inside, escaped", "/reports/a%2Fb", inside, http.StatusOK, "a/b"},
		{"inside, NUL", "/reports/a%00b", inside, http.StatusBadRequest, ""},
		{"inside, not UTF-8", "/reports/%ff", inside, http.StatusBadRequest, ""},
		{"inside, no match", "/other", inside, http.StatusNotFound, ""},
		{"nested", "/v1/reports/7", nested, http.StatusOK, "7"},
		{"around", "/reports/7", m.Handler(around), http.StatusBadRequest, ""},
	}
	for _, tt := range tests {
		w := serve(tt.h, request(tt.path))
		if w.Code != tt.want || tt.text != "" && w.Body.String() != tt.text {
			t.Errorf("%s: status %d, %q; want %d, %q", tt.name, w.Code, w.Body, tt.want, tt.text)
		}
	}
}
