package idempotency_test

import (
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"

	"github.com/latchkey-go/latchkey/internal/httptesting"
	"github.com/latchkey-go/latchkey/sqllock"
)

// A value that could not be decoded again is not stored. The others are.
func TestControlCharacters(t *testing.T) {
	t.Parallel()
	b := oneBank(t)
	h := b.once(sqllock.NewMemory()).Handler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header()["X-Values"] = []string{"bad\x01", "good", "caf\xe9"}
	}))
	for _, want := range []string{"bad\x01 good caf\xe9", "good caf\xe9"} {
		r := httptest.NewRequest(http.MethodPost, "/", nil)
		r.Header.Set(user, "ada")
		r.Header.Set("Idempotency-Key", "k-1")
		r.Pattern = "/"
		w := httptest.NewRecorder()
		h.ServeHTTP(w, r)
		if got := strings.Join(w.Header().Values("X-Values"), " "); w.Code != http.StatusOK || got != want {
			t.Errorf("%d %q, want 200 %q", w.Code, got, want)
		}
	}
}

// Handlers around keep their header fields. A handler that writes nothing
// responds with 200.
func TestHeadersAround(t *testing.T) {
	t.Parallel()
	b := oneBank(t)
	inner := http.NewServeMux()
	inner.Handle("/", b.once(b.locks()).Handler(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {})))
	id := 0
	s := httptesting.Serve(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		id++
		w.Header().Set("X-Request-Id", string(rune('0'+id)))
		inner.ServeHTTP(w, r)
	}))
	for _, want := range []string{"1", "2"} {
		r := mustAsk(t, s, demand{key: "k-1"})
		r.Want(t, http.StatusOK)
		if got := r.Header.Get("X-Request-Id"); got != want {
			t.Errorf("request id %q, want %s", got, want)
		}
	}
}

// A handler may add to the fields that handlers around have set, and remove
// them. A replay has the fields that the handler had set, and lacks those that
// it had removed. The other fields are those of the replay.
func TestHeadersAdded(t *testing.T) {
	t.Parallel()
	b := oneBank(t)
	h := b.once(sqllock.NewMemory()).Handler(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Add("Vary", "Accept")
		w.Header().Add("Set-Cookie", "b=2")
		w.Header().Del("X-Removed")
		w.Header().Set("Trailer", "X-Sum")
		w.Header().Set(http.TrailerPrefix+"X-Late", "1")
	}))
	requests := 0
	around := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		requests++
		w.Header().Set("Vary", "Origin")
		w.Header().Set("Set-Cookie", "a=1")
		w.Header().Set("X-Removed", "x")
		w.Header().Set("X-Count", strings.Repeat("x", requests))
		h.ServeHTTP(w, r)
	})
	first, again := serveKey(around, httptest.NewRequest(http.MethodPost, "/", nil)), serveKey(around, httptest.NewRequest(http.MethodPost, "/", nil))
	for name, want := range map[string][2][]string{
		"Vary":                        {{"Origin", "Accept"}, {"Origin", "Accept"}},
		"Set-Cookie":                  {{"a=1", "b=2"}, {"a=1"}},
		"X-Removed":                   {nil, nil},
		"X-Count":                     {{"x"}, {"xx"}},
		"Trailer":                     {nil, nil},
		http.TrailerPrefix + "X-Late": {nil, nil},
		"Idempotency-Replayed":        {nil, {"true"}},
	} {
		if !slices.Equal(first.Header()[name], want[0]) || !slices.Equal(again.Header()[name], want[1]) {
			t.Errorf("%s: first %q, then %q; want %q", name, first.Header()[name], again.Header()[name], want)
		}
	}
}

// A field that the handler removes is not in a replay either. That holds for
// every field, and for everything that the handler writes instead.
func TestHeadersRemoved(t *testing.T) {
	eachBank(t, func(t *testing.T, b *bank) {
		once := b.once(b.locks())
		route := http.NewServeMux()
		route.Handle("/", once.Handler(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			h := w.Header()
			h.Del("Cache-Control")
			h.Del("Content-Security-Policy")
			h.Set("Set-Cookie", "session=new")
			h["X-Emptied"] = nil
			h.Set("X-Changed", "by the handler")
			w.WriteHeader(http.StatusCreated)
			h.Del("X-Too-Late")
		})))
		s := httptesting.Serve(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			for _, name := range []string{
				"Cache-Control", "Content-Security-Policy", "Set-Cookie", "X-Emptied", "X-Changed", "X-Too-Late", "X-Kept",
			} {
				w.Header().Set(name, "from around")
			}
			route.ServeHTTP(w, r)
		}))
		first, again := mustAsk(t, s, demand{key: "k-1"}), mustAsk(t, s, demand{key: "k-1"})
		wantReplay(t, again, first)
		for name, want := range map[string][2]string{
			"Cache-Control":           {},
			"Content-Security-Policy": {},
			"Set-Cookie":              {"session=new", ""}, // too secret to be stored
			"X-Emptied":               {},
			"X-Changed":               {"by the handler", "by the handler"},
			"X-Too-Late":              {"from around", "from around"},
			"X-Kept":                  {"from around", "from around"},
		} {
			if got := [2]string{first.Header.Get(name), again.Header.Get(name)}; got != want {
				t.Errorf("%s: %q, want %q", name, got, want)
			}
		}
	})
}

// A field without values keeps net/http from adding one of its own, in a replay
// too.
func TestHeadersWithoutValues(t *testing.T) {
	eachBank(t, func(t *testing.T, b *bank) {
		s := b.serve(b.once(b.locks()), http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			w.Header()["Content-Type"] = nil
			w.Header()["Date"] = []string{}
			_, _ = io.WriteString(w, "<html>")
		}))
		first, again := mustAsk(t, s, demand{key: "k-1"}), mustAsk(t, s, demand{key: "k-1"})
		wantReplay(t, again, first)
		for _, r := range []httptesting.Reply{first, again} {
			if r.Header["Content-Type"] != nil || r.Header["Date"] != nil {
				t.Errorf("header %v, want neither Content-Type nor Date", r.Header)
			}
		}
	})
}
