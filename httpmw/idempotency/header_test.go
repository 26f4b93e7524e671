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
// remove them. A replay has the fields that the handler had set, and lacks those
// that it had removed. The other fields are those of the replay.
func TestHeaders(t *testing.T) {
	t.Parallel()
	b := oneBank(t)
	requests := 0
	outer := func(w http.ResponseWriter, _ *http.Request) {
		for _, name := range []string{"Vary", "Set-Cookie", "Cache-Control", "X-Emptied", "X-Changed", "X-Too-Late"} {
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
		h["X-Emptied"] = nil
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
		"Cache-Control":               {nil, nil},
		"X-Emptied":                   {nil, nil},
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

// A field without values keeps net/http from adding one of its own, in a replay
// too. A line break in a value is sent as a space. A handler that sets no status
// responds with 200.
func TestHeadersWithoutValues(t *testing.T) {
	t.Parallel()
	b := oneBank(t)
	s := b.serve(b.once(b.locks()), http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header()["Content-Type"] = nil
		w.Header()["Date"] = []string{}
		w.Header().Set("X-Lines", "two\r\nlines")
		_, _ = io.WriteString(w, "<html>")
	}))
	first, again := mustAsk(t, s, demand{key: "k-1"}), mustAsk(t, s, demand{key: "k-1"})
	first.Want(t, http.StatusOK)
	wantReplay(t, again, first)
	for _, h := range []http.Header{first.Header, again.Header} {
		if h["Content-Type"] != nil || h["Date"] != nil || h.Get("X-Lines") != "two  lines" {
			t.Errorf("header %v, want neither Content-Type nor Date, and line breaks as spaces", h)
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
	h := b.once(b.locks()).Handler(compressing)
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
