package idempotency_test

import (
	"cmp"
	"context"
	"database/sql"
	"errors"
	"io"
	"net/http"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/latchkey-go/latchkey/httpmw"
	"github.com/latchkey-go/latchkey/httpmw/idempotency"
	"github.com/latchkey-go/latchkey/internal/httptesting"
	"github.com/latchkey-go/latchkey/ratelimit"
	"github.com/latchkey-go/latchkey/sqllock"
)

// A handler that panics leaves no effect, response, lock or transaction behind.
// The panic goes on.
func TestPanic(t *testing.T) {
	eachBank(t, func(t *testing.T, b *bank) {
		i := b.once(b.locks())
		ends := []struct {
			key string
			end func()
		}{
			{"value", func() { panic("boom") }},
			{"abort", func() { panic(http.ErrAbortHandler) }},
			{"goexit", runtime.Goexit},
		}
		for n, tt := range ends {
			s := b.serve(i, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				b.record(r)
				w.WriteHeader(http.StatusCreated)
				tt.end()
			}))
			if r, err := ask(t.Context(), s, demand{key: tt.key}); err == nil && tt.key != "goexit" {
				t.Errorf("status %d, want the connection to end", r.StatusCode)
			}
			b.wantEffects(n)
			r := b.retry(b.serve(i, b.pay(http.StatusCreated)), demand{key: tt.key}) // the lock may be on its way back
			if r.Want(t, http.StatusCreated); isReplay(r) {
				t.Errorf("%s: the response of a handler that panicked was stored", tt.key)
			}
		}
		if n := b.db.Stats().InUse; n != 0 {
			t.Errorf("%d connections are still in use", n)
		}
	})
}

// A body or response that is too large is rejected, and has no effect.
func TestSizes(t *testing.T) {
	t.Parallel()
	b := oneBank(t)
	locks := sqllock.NewMemory()
	var wrote error
	h := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		b.record(r)
		_, _ = io.WriteString(w, "1234")
		_, wrote = io.WriteString(w, r.Header.Get("X-More"))
	})
	s := b.serve(b.once(locks, idempotency.WithMaxResponse(5), idempotency.WithMaxBody(3)), h)
	more := func(text string) http.Header { return http.Header{"X-More": {text}} }

	mustAsk(t, s, demand{key: "k-1", body: "1234"}).Want(t, http.StatusRequestEntityTooLarge)
	mustAsk(t, s, demand{key: "k-2", header: more("56")}).Want(t, http.StatusInternalServerError)
	if !errors.Is(wrote, idempotency.ErrResponseTooLarge) {
		t.Errorf("Write: %v, want ErrResponseTooLarge", wrote)
	}
	b.wantLog("WithMaxResponse")
	b.wantEffects(0)
	mustAsk(t, s, demand{key: "k-2", body: "123", header: more("5")}).Want(t, http.StatusOK)
	b.wantEffects(1)

	around := httptesting.Serve(t, http.MaxBytesHandler(s.Config.Handler, 1)) // a limit of another handler
	mustAsk(t, around, demand{key: "k-3", body: "12"}).Want(t, http.StatusRequestEntityTooLarge)
}

// The handler's ResponseWriter is like net/http's, without the methods that
// would send a byte too early.
func TestResponseWriter(t *testing.T) {
	t.Parallel()
	b := oneBank(t)
	s := b.serve(b.once(sqllock.NewMemory()), http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, flusher := w.(http.Flusher)
		_, hijacker := w.(http.Hijacker)
		if flusher || hijacker {
			t.Error("the writer can flush or hijack")
		}
		control := http.NewResponseController(w)
		if err := control.Flush(); !errors.Is(err, http.ErrNotSupported) {
			t.Errorf("Flush: %v, want ErrNotSupported", err)
		}
		if _, _, err := control.Hijack(); !errors.Is(err, http.ErrNotSupported) {
			t.Errorf("Hijack: %v, want ErrNotSupported", err)
		}
		for _, invalid := range []int{99, 1000} {
			httptesting.WantPanic(t, "idempotency", "invalid status", func() { w.WriteHeader(invalid) })
		}
		w.Header().Set("X-Early", "1")
		w.Header().Set("Content-Length", "12345") // wrong
		w.WriteHeader(http.StatusContinue)
		w.WriteHeader(http.StatusEarlyHints)
		w.WriteHeader(http.StatusNoContent)
		w.Header().Set("X-Late", "1")
		w.WriteHeader(http.StatusTeapot)
		w.WriteHeader(999)
		if _, err := io.WriteString(w, "body"); !errors.Is(err, http.ErrBodyNotAllowed) {
			t.Errorf("Write after 204: %v, want ErrBodyNotAllowed", err)
		}
	}))
	for _, replayed := range []string{"", "true"} {
		r := mustAsk(t, s, demand{key: "k-1"})
		r.Want(t, http.StatusNoContent)
		if r.Header.Get("X-Early") != "1" || r.Header.Get("X-Late") != "" || r.Header.Get("Idempotency-Replayed") != replayed {
			t.Errorf("header %v", r.Header)
		}
	}
}

// WithRejection accepts options of an httpmw.Middleware. The reject handler
// gets the reason. A request in flight stays 409.
func TestWithRejection(t *testing.T) {
	t.Parallel()
	b := oneBank(t)
	var got error
	seen := httpmw.WithRejectHandler(func(_ http.ResponseWriter, _ *http.Request, err error) { got = err })
	options := []idempotency.Option{
		idempotency.WithRejection(httpmw.WithBusyText("It is being paid."), httpmw.WithConflict()),
		idempotency.WithRejection(httpmw.WithProblemType("https://example.com/busy"), httpmw.WithRateLimitHeaders(), seen),
	}
	s := b.serve(b.once(sqllock.NewMemory(), options...), b.pay(http.StatusCreated))
	for _, tt := range []struct {
		d    demand
		want error
	}{
		{demand{}, httpmw.ErrNoKey},
		{demand{key: `"`}, ratelimit.ErrBadID},
		{demand{key: "k-1"}, nil},
		{demand{key: "k-1", body: "2"}, idempotency.ErrOtherPayload},
	} {
		got = nil
		if mustAsk(t, s, tt.d); !errors.Is(got, tt.want) {
			t.Errorf("the reject handler gets %v, want %v", got, tt.want)
		}
	}
	busy := b.serve(b.once(httptesting.Failing{Err: sqllock.ErrHeld}, options...), b.pay(http.StatusCreated))
	r := mustAsk(t, busy, demand{key: "k-2"})
	r.Want(t, http.StatusConflict)
	for _, part := range []string{`"type":"https://example.com/busy"`, `"detail":"It is being paid. Try again in `} {
		if !strings.Contains(r.Text, part) {
			t.Errorf("%s, want %s", r.Text, part)
		}
	}
	if got := r.Header.Get("RateLimit-Policy"); got != `"pay";q=1;qu="concurrent-requests"` {
		t.Errorf("RateLimit-Policy %s", got)
	}
}

func TestMisusePanics(t *testing.T) {
	t.Parallel()
	b := oneBank(t)
	l := ratelimit.OneAtATime(sqllock.NewMemory(), "pay")
	key := httpmw.Header(user)
	for name, misuse := range map[string]func(){
		"nil db":        func() { idempotency.New(nil, l, key) },
		"nil limiter":   func() { idempotency.New(b.db, nil, key) },
		"nil principal": func() { idempotency.New(b.db, l, nil) },
		"two at a time": func() { idempotency.New(b.db, ratelimit.AtMost(2, sqllock.NewMemory(), "pay"), key) },
		"nil handler":   func() { idempotency.New(b.db, l, key).Handler(nil) },
		"nil route":     func() { idempotency.WithRoute(nil) },
		"no headers":    func() { idempotency.WithFingerprintHeaders() },
		"empty header":  func() { idempotency.WithFingerprintHeaders("Prefer", "") },
		"nil errors":    func() { idempotency.WithStoredErrors(nil) },
		"nil logger":    func() { idempotency.WithLogger(nil) },
		"no body":       func() { idempotency.WithMaxBody(0) },
		"no response":   func() { idempotency.WithMaxResponse(0) },
		"nil key":       func() { idempotency.WithKey(nil) },
		"no idle time":  func() { idempotency.WithMaxIdle(0) },
		"too long":      func() { idempotency.WithMaxIdle(25 * 24 * time.Hour) },
		"read-only":     func() { idempotency.WithTxOptions(sql.TxOptions{ReadOnly: true}) },
	} {
		t.Run(name, func(t *testing.T) { httptesting.WantPanic(t, "idempotency", "", misuse) })
	}
	idempotency.WithMaxIdle(time.Millisecond) // the bounds themselves are no misuse
	idempotency.WithMaxIdle(24 * 24 * time.Hour)
}

// A mistake of the service is 500 without Retry-After, and has no effect. The
// log says what to change. Each is corrected in the second request.
func TestServiceMistakes(t *testing.T) {
	eachBank(t, func(t *testing.T, b *bank) {
		locks := sqllock.NewMemory()
		for name, tt := range map[string]struct {
			policy ratelimit.Option
			opt    idempotency.Option
			status int    // of the handler
			log    string // a part of it
		}{
			"short-ids":           {policy: ratelimit.WithMaxIDLen(63), log: "WithMaxIDLen"},
			"no-limit":            {policy: ratelimit.WithLimit(func(context.Context, string) int { return 0 }), log: "WithLimit"},
			"unknown-isolation":   {opt: idempotency.WithTxOptions(sql.TxOptions{Isolation: sql.LevelLinearizable}), log: "WithTxOptions"},
			"no-route":            {opt: idempotency.WithRoute(func(*http.Request) (string, error) { return "", nil }), log: "WithRoute"},
			"switching-protocols": {status: http.StatusSwitchingProtocols, log: "cannot switch protocols"},
		} {
			policy, opts := []ratelimit.Option{ratelimit.WithMaxIDLen(64)}, []idempotency.Option{}
			if tt.policy != nil {
				policy = append(policy, tt.policy)
			}
			if tt.opt != nil {
				opts = append(opts, tt.opt)
			}
			bad := b.serve(b.onceBy(ratelimit.OneAtATime(locks, "pay", policy...), opts...), b.pay(cmp.Or(tt.status, http.StatusCreated)))
			b.do("DELETE FROM ledger")
			r := mustAsk(t, bad, demand{key: name})
			if r.StatusCode != http.StatusInternalServerError || r.Header.Get("Retry-After") != "" {
				t.Errorf("%s: %d, Retry-After %q; want 500 without", name, r.StatusCode, r.Header.Get("Retry-After"))
			}
			b.wantLog(tt.log)
			b.wantEffects(0)
			good := b.serve(b.onceBy(ratelimit.OneAtATime(locks, "pay", policy[0])), b.pay(http.StatusCreated))
			mustAsk(t, good, demand{key: name}).Want(t, http.StatusCreated)
		}
	})
}
