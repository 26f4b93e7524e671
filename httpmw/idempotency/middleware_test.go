package idempotency_test

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/latchkey-go/latchkey/httpmw"
	"github.com/latchkey-go/latchkey/httpmw/idempotency"
	"github.com/latchkey-go/latchkey/internal/httptesting"
	"github.com/latchkey-go/latchkey/internal/lockertest"
	"github.com/latchkey-go/latchkey/ratelimit"
	"github.com/latchkey-go/latchkey/sqllock"
)

// A request that is sent again takes effect once, and gets the first response,
// from any instance.
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
		if note := b.number("SELECT count(*) FROM ledger WHERE note = '10 to bob'"); note != 1 || b.runs.Load() != 1 {
			t.Errorf("%d rows of the body, %d runs; want 1 and 1", note, b.runs.Load())
		}
	})
}

// Neither keys nor principals are in the database.
func TestStoresNoNames(t *testing.T) {
	t.Parallel()
	b := oneBank(t)
	mustAsk(t, b.serve(b.once(b.locks()), b.pay(http.StatusCreated)), demand{key: "k-1"}).Want(t, http.StatusCreated)
	var row string
	if err := b.db.QueryRow("SELECT a::text || encode(key, 'escape') || encode(fingerprint, 'escape') || encode(header, 'escape') || encode(body, 'escape') FROM latchkey_responses a").Scan(&row); err != nil {
		t.Fatal(err)
	}
	if strings.Contains(row, "ada") || strings.Contains(row, "k-1") || strings.Contains(row, "secret") {
		t.Errorf("a name is in %s", row)
	}
}

func TestKeyHeader(t *testing.T) {
	t.Parallel()
	b := oneBank(t)
	s := b.serve(b.once(b.locks()), b.pay(http.StatusCreated))
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
		{"string", []string{`"a key"`}, ok},
		{"escapes", []string{`"a\"b\\c"`}, ok},
		{"bad escape", []string{`"a\b"`}, bad},
		{"ends in escape", []string{`"a\`}, bad},
		{"not closed", []string{`"a`}, bad},
		{"parameters", []string{`"a";b=1;c;d="x\"y"; *e=*t/o:k;f=:YQ==:;g=?1;h=-1.25;i=@1659578233;j=%"f%c3%bc"`}, ok},
		{"parameter of a bare word", []string{`a;b=1`}, bad},
		{"space before a parameter", []string{`"a" ;b=1`}, bad},
		{"no parameter", []string{`"a";`}, bad},
		{"parameter without a value", []string{`"a";b=`}, bad},
		{"parameter with a capital", []string{`"a";B=1`}, bad},
		{"parameter in two words", []string{`"a";b=1 2`}, bad},
		{"list in a parameter", []string{`"a";b=1, "c"`}, bad},
		{"string not closed in a parameter", []string{`"a";b="c`}, bad},
		{"key after a parameter", []string{`"a";b=1"c"`}, bad},
		{"boolean", []string{`"a";b=?2`}, bad},
		{"bytes not closed", []string{`"a";b=:YQ==`}, bad},
		{"integer too long", []string{`"a";b=1234567890123456`}, bad},
		{"decimal too precise", []string{`"a";b=1.2345`}, bad},
		{"decimal without digits", []string{`"a";b=1.`}, bad},
		{"date with a fraction", []string{`"a";b=@1.5`}, bad},
		{"sign alone", []string{`"a";b=-`}, bad},
		{"display string with a bad octet", []string{`"a";b=%"%C3"`}, bad},
		{"display string that is not UTF-8", []string{`"a";b=%"%c3"`}, bad},
		{"quote inside", []string{`a"b`}, bad},
		{"bare with space", []string{"a b"}, bad},
		{"not ASCII", []string{"\"é\""}, bad},
		{"bare, not ASCII", []string{"é"}, bad},
		{"longest", []string{long}, ok},
		{"longest string", []string{`"` + strings.Repeat(`\"`, 255) + `"`}, ok},
		{"too long", []string{long + "x"}, bad},
	} {
		t.Run(tt.name, func(t *testing.T) {
			r := mustAsk(t, s, demand{header: http.Header{"Idempotency-Key": tt.values}, who: "ada-" + tt.name})
			r.Want(t, tt.want)
			if tt.want == bad && (!strings.Contains(r.Text, "Idempotency-Key") || r.Header.Get("Retry-After") != "") {
				t.Errorf("response %v %s, want one that names the header and no Retry-After", r.Header, r.Text)
			}
		})
	}
	quoted := mustAsk(t, s, demand{key: `"k-1"`})
	for _, spelling := range []string{"k-1", `"k-1";p=1`, `"k-1";q`} { // of one key
		wantReplay(t, mustAsk(t, s, demand{key: spelling}), quoted)
	}
	mustAsk(t, s, demand{key: `"k-1;p=1"`}).Want(t, http.StatusCreated)
	b.wantEffects(int(b.runs.Load()))
}

// The same key with another payload is rejected. The response and the log say
// so.
func TestOtherPayload(t *testing.T) {
	eachBank(t, func(t *testing.T, b *bank) {
		s := b.serve(b.once(b.locks()), b.pay(http.StatusCreated))
		same := func() demand {
			return demand{key: "k-1", path: "/a?x=1", body: "10", header: http.Header{"Content-Type": {"text/plain"}}}
		}
		first := mustAsk(t, s, same())
		for name, change := range map[string]func(d *demand){
			"body":    func(d *demand) { d.body = "11" },
			"no body": func(d *demand) { d.body = "" },
			"path":    func(d *demand) { d.path = "/b?x=1" },
			"query":   func(d *demand) { d.path = "/a?x=2" },
			"cut between the two": func(d *demand) {
				d.header.Set("Content-Type", "text/plain1")
				d.body = "0"
			},
			"content type": func(d *demand) { d.header.Set("Content-Type", "application/json") },
		} {
			d := same()
			change(&d)
			r := mustAsk(t, s, d)
			if r.StatusCode != http.StatusUnprocessableEntity || r.Header.Get("Retry-After") != "" {
				t.Errorf("another %s: %d, Retry-After %q; want 422 without", name, r.StatusCode, r.Header.Get("Retry-After"))
			}
		}
		wantReplay(t, mustAsk(t, s, same()), first)
		b.wantEffects(1)
		b.wantLog("another payload")
	})
}

// While a request is in flight, others with its key are rejected in every
// instance. After that they get its response.
func TestInFlight(t *testing.T) {
	eachBank(t, func(t *testing.T, b *bank) {
		g := httptesting.NewGate(t)
		h := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			b.record(r)
			g.ServeHTTP(w, r)
		})
		here, there := b.serve(b.once(b.locks()), h), b.serve(b.once(b.locks()), h)
		d := demand{key: "k-1"}
		first := asking(t, here, d)
		httptesting.Receive(t, g.Inside, "first request")
		for _, s := range []*httptest.Server{here, there} {
			r := mustAsk(t, s, d)
			r.Want(t, http.StatusConflict)
			checkProblem(t, &http.Response{Header: r.Header, Body: io.NopCloser(strings.NewReader(r.Text))}, http.StatusConflict)
			if r.Header.Get("Retry-After") == "" {
				t.Error("409 without Retry-After")
			}
		}
		close(g.Leave)
		response := httptesting.Receive(t, first, "first response")
		wantReplay(t, mustAsk(t, there, d), response)
		b.wantEffects(1)
	})
}

// With WithWait the others wait, and get the first response.
func TestWaits(t *testing.T) {
	eachBank(t, func(t *testing.T, b *bank) {
		g := httptesting.NewGate(t)
		h := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			b.record(r)
			g.ServeHTTP(w, r)
		})
		var sessions []*sqllock.Session
		var servers []*httptest.Server
		for range 2 {
			s := b.locks()
			sessions = append(sessions, s)
			servers = append(servers, b.serve(b.onceBy(ratelimit.OneAtATime(s, "pay", ratelimit.WithWait(time.Minute, 10))), h))
		}
		d := demand{key: "k-1"}
		first := asking(t, servers[0], d)
		httptesting.Receive(t, g.Inside, "first request")
		waiting := []<-chan httptesting.Reply{asking(t, servers[0], d), asking(t, servers[1], d)}
		for i, s := range sessions {
			lockertest.Eventually(t, fmt.Sprint("the duplicate waits in instance ", i), func() bool { return s.Stats().Waiting == 1 })
		}
		close(g.Leave)
		response := httptesting.Receive(t, first, "first response")
		for _, c := range waiting {
			wantReplay(t, httptesting.Receive(t, c, "response to a duplicate"), response)
		}
		b.wantEffects(1)
	})
}

// The same key of another principal, route or limiter is another key.
func TestScope(t *testing.T) {
	t.Parallel()
	b := oneBank(t)
	locks := b.locks()
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
	mustAsk(t, pay, demand{key: "k-1", who: "-"}).Want(t, http.StatusCreated)
	r, err := http.Post(pay.URL, "", nil) //nolint:noctx // loopback; a request without a user
	if err != nil {
		t.Fatal(err)
	}
	_ = r.Body.Close()
	if r.StatusCode != http.StatusBadRequest {
		t.Errorf("without a principal: %d, want 400", r.StatusCode)
	}
}

// The route is the pattern of the mux, or that of WithRoute. A request without
// one has no effect.
func TestRoute(t *testing.T) {
	t.Parallel()
	b := oneBank(t)
	locks := b.locks()
	around := httptesting.Serve(t, b.once(locks).Handler(b.pay(http.StatusCreated)))
	mustAsk(t, around, demand{key: "k-1"}).Want(t, http.StatusInternalServerError)
	b.wantLog("WithRoute")
	none := idempotency.WithRoute(func(*http.Request) (string, error) { return "", nil })
	mustAsk(t, httptesting.Serve(t, b.once(locks, none).Handler(b.pay(http.StatusCreated))), demand{key: "k-1"}).Want(t, http.StatusInternalServerError)
	b.wantEffects(0)

	named := idempotency.WithRoute(func(r *http.Request) (string, error) { return r.URL.Path, nil })
	s := httptesting.Serve(t, b.once(locks, named).Handler(b.pay(http.StatusCreated)))
	for _, path := range []string{"/a", "/b", "/a"} {
		mustAsk(t, s, demand{key: "k-1", path: path}).Want(t, http.StatusCreated)
	}
	b.wantEffects(2)
}
