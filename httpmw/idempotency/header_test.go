package idempotency_test

import (
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/latchkey-go/latchkey/sqllock"
)

// A handler may add to the fields that handlers around have set, change and
// remove them. A replay has the fields that the handler had set. The other
// fields are those of the handlers around. A line break in a value is a space.
func TestHeaders(t *testing.T) {
	t.Parallel()
	b := oneBank(t)
	requests := 0
	outer := func(w http.ResponseWriter, _ *http.Request) {
		for _, name := range []string{"Vary", "Set-Cookie", "Cache-Control", "X-Changed", "X-Too-Late"} {
			w.Header().Set(name, "around")
		}
		requests++
		w.Header().Set("X-Count", strconv.Itoa(requests))
	}
	h := around(outer, b.once(sqllock.NewMemory()).Handler(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		h := w.Header()
		h.Add("Vary", "Accept")
		h.Add("Set-Cookie", "b=2")
		h.Del("Cache-Control")
		h.Set("X-Lines", "two\r\nlines")
		h.Set("X-Changed", "by the handler")
		h["X-Values"] = []string{"bad\x01", "good", "caf\xe9"}
		h.Set("Trailer", "X-Sum")
		h.Set(http.TrailerPrefix+"X-Late", "1")
		w.WriteHeader(http.StatusCreated)
		h.Del("X-Too-Late")
	})))
	send := func() http.Header {
		w := serveKey(h, httptest.NewRequest(http.MethodPost, "/", nil))
		if w.Code != http.StatusCreated {
			t.Errorf("status %d, want 201", w.Code)
		}
		return w.Result().Header
	}
	first, again := send(), send()
	for name, want := range map[string][2][]string{
		"Vary":                        {{"around", "Accept"}, {"around", "Accept"}},
		"Set-Cookie":                  {{"around", "b=2"}, {"around"}}, // too secret to be stored
		"Cache-Control":               {nil, {"around"}},
		"X-Lines":                     {{"two\r\nlines"}, {"two  lines"}},
		"X-Changed":                   {{"by the handler"}, {"by the handler"}},
		"X-Too-Late":                  {{"around"}, {"around"}},
		"X-Count":                     {{"1"}, {"2"}},
		"X-Values":                    {{"bad\x01", "good", "caf\xe9"}, {"good", "caf\xe9"}}, // what cannot be decoded is not stored
		"Trailer":                     {nil, nil},
		http.TrailerPrefix + "X-Late": {nil, nil},
		"Idempotency-Replayed":        {nil, {"true"}},
	} {
		if !slices.Equal(first[name], want[0]) || !slices.Equal(again[name], want[1]) {
			t.Errorf("%s: first %q, then %q; want %q", name, first[name], again[name], want)
		}
	}
}

// A replay is for clients that accept gzip and for those that do not, so a
// handler that compresses is not asked to. A compressor around sees the client's
// wish.
func TestCompression(t *testing.T) {
	t.Parallel()
	b := oneBank(t)
	compressing := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if strings.Contains(r.Header.Get("Accept-Encoding"), "gzip") {
			w.Header().Set("Content-Encoding", "gzip")
			_, _ = io.WriteString(w, gzipped("paid"))
			return
		}
		_, _ = io.WriteString(w, "paid")
	})
	h := b.once(sqllock.NewMemory()).Handler(compressing)
	for _, accepts := range []string{"gzip", "identity"} {
		r := httptest.NewRequest(http.MethodPost, "/", nil)
		r.Header.Set("Accept-Encoding", accepts)
		w := serveKey(h, r)
		if w.Body.String() != "paid" || w.Header().Get("Content-Encoding") != "" {
			t.Errorf("a client that accepts %s gets %v %q", accepts, w.Header(), w.Body)
		}
		if got := r.Header.Get("Accept-Encoding"); got != accepts {
			t.Errorf("a handler around sees Accept-Encoding %q, want %q", got, accepts)
		}
	}
}
