package idempotency_test

import (
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"

	"github.com/latchkey-go/latchkey/httpmw/idempotency"
	"github.com/latchkey-go/latchkey/sqllock"
)

// The same key with another payload is rejected. The response and the log say
// so.
func TestFingerprint(t *testing.T) {
	t.Parallel()
	b := oneBank(t)
	pay := b.once(sqllock.NewMemory()).Handler(b.pay(http.StatusCreated))
	inner := http.NewServeMux()
	inner.Handle("/pay", pay)
	outer := http.NewServeMux()
	outer.Handle("/v1/", http.StripPrefix("/v1", inner))
	outer.Handle("/v2/", http.StripPrefix("/v2", inner))
	const post, target, text = http.MethodPost, "http://a.example/v1/pay?x=1", "text/plain"
	for _, tt := range []struct {
		method, target, contentType, body string
		same                              bool
	}{
		{post, target, text, "10", true},
		{post, "http://A.example:8080/v1/pay?x=1", text, "10", true}, // another instance
		{http.MethodPut, target, text, "10", false},
		{post, "http://a.example/v2/pay?x=1", text, "10", false}, // another mount
		{post, "http://b.example/v1/pay?x=1", text, "10", false},
		{post, "http://a.example/v1/pay?x=2", text, "10", false},
		{post, target, "application/json", "10", false},
		{post, target, text, "11", false},
		{post, target, text, "", false},
		{post, target, text + "1", "0", false}, // the cut between the two is elsewhere
		{post, target, text, "10", true},
	} {
		r := httptest.NewRequest(tt.method, tt.target, strings.NewReader(tt.body))
		r.Header.Set("Content-Type", tt.contentType)
		w := serveKey(outer, r)
		want := http.StatusUnprocessableEntity
		if tt.same {
			want = http.StatusCreated
		}
		if w.Code != want || w.Header().Get("Retry-After") != "" {
			t.Errorf("%+v: %d, Retry-After %q; want %d without", tt, w.Code, w.Header().Get("Retry-After"), want)
		}
	}
	b.wantLog("another payload")
	r := httptest.NewRequest(post, "http://a.example/pay?x=1", strings.NewReader("10")) // made by hand, for no server
	r.Header.Set("Content-Type", text)
	r.RequestURI, r.URL, r.Pattern = "", &url.URL{Path: "/v1/pay", RawQuery: "x=1"}, "/pay"
	if w := serveKey(pay, r); w.Header().Get("Idempotency-Replayed") == "" {
		t.Errorf("without RequestURI: %d, want the URL to count", w.Code)
	}
	b.wantEffects(1)
}

// Header fields that change what a request does are part of its fingerprint:
// two by default, others by an option. Other fields are not.
func TestFingerprintHeaders(t *testing.T) {
	t.Parallel()
	b := oneBank(t)
	locks := sqllock.NewMemory()
	usual := b.serve(b.once(locks), b.pay(http.StatusCreated))
	more := b.serve(b.once(locks, idempotency.WithFingerprintHeaders("x-dry-run", "If-None-Match", "X-Dry-Run")), b.pay(http.StatusCreated))
	const same, other = http.StatusCreated, http.StatusUnprocessableEntity
	for name, tt := range map[string]struct {
		first, then       http.Header
		wantUsual, wantBy int // of a Middleware with the option
	}{
		"none":         {nil, nil, same, same},
		"changed":      {http.Header{"If-Match": {`"1"`}}, http.Header{"If-Match": {`"2"`}}, other, other},
		"added":        {nil, http.Header{"If-Match": {`"1"`}}, other, other},
		"empty":        {nil, http.Header{"If-Match": {""}}, other, other},
		"joined":       {http.Header{"If-Match": {`"1"`, `"2"`}}, http.Header{"If-Match": {`"1", "2"`}}, same, same},
		"override":     {http.Header{"X-Http-Method-Override": {"PATCH"}}, http.Header{"X-Http-Method-Override": {"PUT"}}, other, other},
		"moved":        {http.Header{"If-Match": {"PUT"}}, http.Header{"X-Http-Method-Override": {"PUT"}}, other, other},
		"by option":    {http.Header{"X-Dry-Run": {"1"}}, nil, same, other},
		"canonical":    {http.Header{"If-None-Match": {"*"}}, http.Header{"If-None-Match": {`"1"`}}, same, other},
		"of no effect": {http.Header{"Traceparent": {"1"}, "Accept": {"*/*"}}, http.Header{"Traceparent": {"2"}}, same, same},
	} {
		for who, s := range map[string]*httptest.Server{"usual": usual, "more": more} {
			want := map[string]int{"usual": tt.wantUsual, "more": tt.wantBy}[who]
			d := demand{key: "k-1", who: who + name, header: tt.first, body: "x"}
			mustAsk(t, s, d).Want(t, http.StatusCreated)
			d.header = tt.then
			if r := mustAsk(t, s, d); r.StatusCode != want {
				t.Errorf("%s: %s: %d, want %d", name, who, r.StatusCode, want)
			}
		}
	}
	// Instances with and without the option store the same for a request
	// without such a field.
	first := mustAsk(t, usual, demand{key: "k-2"})
	wantReplay(t, mustAsk(t, more, demand{key: "k-2"}), first)
}
