package idempotency_test

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/latchkey-go/latchkey/httpmw"
	"github.com/latchkey-go/latchkey/httpmw/idempotency"
	"github.com/latchkey-go/latchkey/internal/httptesting"
	"github.com/latchkey-go/latchkey/ratelimit"
	"github.com/latchkey-go/latchkey/sqllock"
)

// A request that is sent again takes effect once, and gets the first response,
// from any instance. Neither keys nor principals are in the database.
func TestReplays(t *testing.T) {
	eachBank(t, func(t *testing.T, b *bank) {
		here := b.serve(b.once(b.locks()), b.pay(http.StatusCreated))
		there := b.serve(b.once(b.locks()), b.pay(http.StatusCreated))
		d := demand{key: "k-1", body: "10 to bob"}
		first := mustAsk(t, here, d)
		first.Want(t, http.StatusCreated)
		if first.Header.Get("Set-Cookie") == "" {
			t.Error("the first response has lost its cookie")
		}
		for _, s := range []*httptest.Server{here, there} {
			r := mustAsk(t, s, d)
			wantReplay(t, r, first)
			if r.Header.Get("X-Receipt") != "r-1" || r.Header.Get("Set-Cookie") != "" {
				t.Errorf("replayed header %v, want the receipt and no cookie", r.Header)
			}
		}
		b.wantEffects(1)
		if names := b.number(`SELECT count(*) FROM latchkey_responses a WHERE a::text || encode(key, 'escape') || encode(fingerprint, 'escape') ||
			encode(header, 'escape') || encode(body, 'escape') ~ 'ada|k-1|secret'`); names > 0 {
			t.Error("a name is in the database")
		}
		if note := b.number("SELECT count(*) FROM ledger WHERE note = '10 to bob'"); note != 1 || b.runs.Load() != 1 {
			t.Errorf("%d rows of the body, %d runs; want 1 and 1", note, b.runs.Load())
		}
	})
}

func TestKeyHeader(t *testing.T) {
	t.Parallel()
	b := oneBank(t)
	s := b.serve(b.once(sqllock.NewMemory()), b.pay(http.StatusCreated))
	const ok, bad = http.StatusCreated, http.StatusBadRequest
	long := strings.Repeat("x", 255)
	for _, tt := range []struct {
		name   string
		values []string
		want   int
	}{
		{"none", nil, bad},
		{"empty", []string{""}, bad},
		{"empty string", []string{`""`}, bad},
		{"two", []string{"a", "b"}, bad},
		{"joined by a proxy", []string{"a, b"}, bad},
		{"joined strings", []string{`"a", "b"`}, bad},
		{"bare", []string{"8e03978e-40d5-43dd-bc93-6894a57f9324"}, ok},
		{"string", []string{`"a key ~"`}, ok},
		{"escapes", []string{`"a\"b\\c"`}, ok},
		{"bad escape", []string{`"a\b"`}, bad},
		{"ends in escape", []string{`"a\`}, bad},
		{"not closed", []string{`"a`}, bad},
		{"parameters", []string{`"a";b=1;c;d="x\"y"; *e=?1`}, ok},
		{"parameter of a bare word", []string{`a;b=1`}, bad},
		{"space before a parameter", []string{`"a" ;b=1`}, bad},
		{"list in a parameter", []string{`"a";b=1, "c"`}, bad},
		{"not ASCII in a parameter", []string{`"a";b="é"`}, bad},
		{"quote inside", []string{`a"b`}, bad},
		{"bare with space", []string{"a b"}, bad},
		{"not ASCII", []string{"\"é\""}, bad},
		{"bare, not ASCII", []string{"é"}, bad},
		{"longest", []string{long}, ok},
		{"longest string", []string{`"` + strings.Repeat(`\"`, 255) + `"`}, ok},
		{"too long", []string{long + "x"}, bad},
	} {
		r := mustAsk(t, s, demand{header: http.Header{"Idempotency-Key": tt.values}, who: "ada-" + tt.name})
		if r.StatusCode != tt.want {
			t.Errorf("%s: status %d, want %d", tt.name, r.StatusCode, tt.want)
		}
		if tt.want == bad && (!strings.Contains(r.Text, "Idempotency-Key") || r.Header.Get("Retry-After") != "") {
			t.Errorf("%s: response %v %s, want one that names the header and no Retry-After", tt.name, r.Header, r.Text)
		}
	}
	quoted := mustAsk(t, s, demand{key: `"k-1"`})
	for _, spelling := range []string{"k-1", `"k-1";p=1`, `"k-1";q`} { // of one key
		wantReplay(t, mustAsk(t, s, demand{key: spelling}), quoted)
	}
	mustAsk(t, s, demand{key: `"k-1;p=1"`}).Want(t, http.StatusCreated)
	b.wantEffects(int(b.runs.Load()))
}

// The same key of another principal, route or limiter is another key. The route
// is the pattern of the mux, or that of WithRoute. A request without one has no
// effect.
func TestScope(t *testing.T) {
	t.Parallel()
	b := oneBank(t)
	locks := sqllock.NewMemory()
	around := httptesting.Serve(t, b.once(locks).Handler(b.pay(http.StatusCreated)))
	mustAsk(t, around, demand{key: "k-1"}).Want(t, http.StatusInternalServerError)
	b.wantLog("WithRoute")
	b.wantEffects(0)
	pay := b.serve(b.once(locks), b.pay(http.StatusCreated))
	refund := b.serve(b.onceBy(ratelimit.OneAtATime(locks, "refund")), b.pay(http.StatusCreated))
	shifted := b.serve(b.once(locks, idempotency.WithRoute(httpmw.Header("X-Route"))), b.pay(http.StatusCreated))
	for i, try := range []struct {
		s *httptest.Server
		d demand
	}{
		{pay, demand{key: "k-1"}},
		{pay, demand{key: "k-2"}},
		{pay, demand{key: "k-1", who: "bob"}},
		{pay, demand{key: "k-1", path: "/other"}},
		{refund, demand{key: "k-1"}},
		{shifted, demand{key: "k-1", who: "bo", header: http.Header{"X-Route": {"b/"}}}}, // bo + b/ is not bob + /
	} {
		r := mustAsk(t, try.s, try.d)
		r.Want(t, http.StatusCreated)
		if r.Header.Get("Idempotency-Replayed") != "" {
			t.Errorf("request %d got another one's response", i)
		}
	}
	b.wantEffects(6)
}
