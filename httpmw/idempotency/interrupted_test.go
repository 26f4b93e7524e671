package idempotency_test

import (
	"context"
	"errors"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"runtime"
	"testing"

	"github.com/latchkey-go/latchkey/httpmw"
	"github.com/latchkey-go/latchkey/httpmw/idempotency"
	"github.com/latchkey-go/latchkey/internal/httptesting"
	"github.com/latchkey-go/latchkey/internal/lockertest"
	"github.com/latchkey-go/latchkey/sqllock"
)

// An interruption ends the context of a handler that is running.
type interruption struct {
	name        string
	clientStays bool
	cause       error
	now         func(b *bank, leave, shutdown context.CancelFunc)
}

var interruptions = []interruption{
	{"client leaves", false, context.Canceled, func(_ *bank, leave, _ context.CancelFunc) { leave() }},
	{"lock lost", true, sqllock.ErrLost, func(b *bank, _, _ context.CancelFunc) { httptesting.Terminate(b.t, b.db) }},
	{"shutdown", true, context.Canceled, func(_ *bank, _, shutdown context.CancelFunc) { shutdown() }},
}

// eachInterruption runs test for every interruption and both drivers.
func eachInterruption(t *testing.T, test func(t *testing.T, b *bank, in interruption)) {
	t.Parallel()
	for _, in := range interruptions {
		t.Run(in.name, func(t *testing.T) {
			eachBank(t, func(t *testing.T, b *bank) { test(t, b, in) })
		})
	}
}

// interrupt sends d to h, and interrupts the request once inside has a token
// from h. The reply is nil if the client has left.
func (b *bank) interrupt(in interruption, h http.Handler, inside <-chan struct{}, d demand) *httptesting.Reply {
	b.t.Helper()
	base, shutdown := context.WithCancel(b.t.Context())
	defer shutdown()
	mux := http.NewServeMux()
	mux.Handle("/", h)
	s := httptest.NewUnstartedServer(mux)
	s.Config.ErrorLog = log.New(io.Discard, "", 0)
	s.Config.BaseContext = func(net.Listener) context.Context { return base }
	s.Start()
	defer s.Close()
	client, leave := context.WithCancel(b.t.Context())
	defer leave()
	type outcome struct {
		reply httptesting.Reply
		err   error
	}
	outcomes := make(chan outcome, 1)
	go func() {
		r, err := ask(client, s, d)
		outcomes <- outcome{r, err}
	}()
	httptesting.Receive(b.t, inside, "start of the handler")
	in.now(b, leave, shutdown)
	o := httptesting.Receive(b.t, outcomes, "end of the request")
	switch {
	case !in.clientStays:
		return nil
	case o.err != nil:
		b.t.Fatal(o.err)
	}
	return &o.reply
}

// retry sends d to s until no earlier lock or transaction blocks it.
func (b *bank) retry(s *httptest.Server, d demand) (r httptesting.Reply) {
	b.t.Helper()
	lockertest.Eventually(b.t, "the retry is served", func() bool {
		r = mustAsk(b.t, s, d)
		return r.StatusCode != http.StatusConflict && r.StatusCode != http.StatusServiceUnavailable
	})
	return r
}

// waits returns a handler that does half of its effect, waits until its context
// ends, and then calls end.
func (b *bank) waits(inside chan<- struct{}, end http.HandlerFunc) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		b.record(r)
		inside <- struct{}{}
		<-r.Context().Done()
		end(w, r)
	})
}

// A handler that returns without a response after the end of its context may
// have done half of its effect. Nothing is committed, and the retry runs the
// handler.
func TestInterrupted(t *testing.T) {
	for name, end := range map[string]http.HandlerFunc{
		"nothing":   func(http.ResponseWriter, *http.Request) {},
		"1xx alone": func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusProcessing) },
		"a header":  func(w http.ResponseWriter, _ *http.Request) { w.Header().Set("X-Receipt", "r-1") },
	} {
		t.Run(name, func(t *testing.T) {
			eachInterruption(t, func(t *testing.T, b *bank, in interruption) {
				reasons := make(chan error, 1)
				told := idempotency.WithRejection(httpmw.WithRejectHandler(func(_ http.ResponseWriter, _ *http.Request, err error) {
					if errors.Is(err, httpmw.ErrInterrupted) { // and not a retry that comes too early
						reasons <- err
					}
				}))
				i, d, inside := b.once(b.locks(), told), demand{key: "k-1", body: "debit"}, make(chan struct{}, 1)
				r := b.interrupt(in, i.Handler(b.waits(inside, end)), inside, d)
				if r != nil {
					r.Want(t, http.StatusServiceUnavailable)
					if r.Header.Get("Retry-After") == "" || r.Header.Get("X-Receipt") != "" {
						t.Errorf("header %v, want Retry-After and nothing of the handler's", r.Header)
					}
				}
				if err := httptesting.Receive(t, reasons, "reason"); !errors.Is(err, in.cause) {
					t.Errorf("reason %v, want %v", err, in.cause)
				}
				again := b.retry(b.serve(i, b.pay(http.StatusCreated)), d)
				again.Want(t, http.StatusCreated)
				if again.Header.Get("Idempotency-Replayed") != "" {
					t.Error("the response of an interrupted handler was stored")
				}
				b.wantEffects(1)
			})
		})
	}
}

// A handler that writes a 2xx or 3xx itself has done its effect, whether its
// context has ended or not.
func TestInterruptedButDone(t *testing.T) {
	for name, end := range map[string]http.HandlerFunc{
		"a header alone": func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusOK) },
		"a body alone":   func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "paid") },
		"303":            func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusSeeOther) },
	} {
		t.Run(name, func(t *testing.T) {
			eachInterruption(t, func(t *testing.T, b *bank, in interruption) {
				i, d, inside := b.once(b.locks()), demand{key: "k-1"}, make(chan struct{}, 1)
				b.interrupt(in, i.Handler(b.waits(inside, end)), inside, d)
				if r := b.retry(b.serve(i, b.pay(http.StatusCreated)), d); r.Header.Get("Idempotency-Replayed") != "true" {
					t.Errorf("%d without a replay", r.StatusCode)
				}
				b.wantEffects(1)
			})
		})
	}
}

// A handler that is interrupted and panics leaves nothing behind either.
func TestInterruptedPanic(t *testing.T) {
	for name, end := range map[string]func(){
		"abort":  func() { panic(http.ErrAbortHandler) },
		"goexit": runtime.Goexit,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := oneBank(t)
			i, d, inside := b.once(b.locks()), demand{key: "k-1"}, make(chan struct{}, 1)
			b.interrupt(interruptions[0], i.Handler(b.waits(inside, func(w http.ResponseWriter, _ *http.Request) {
				w.WriteHeader(http.StatusCreated)
				end()
			})), inside, d)
			r := b.retry(b.serve(i, b.pay(http.StatusCreated)), d)
			if r.Want(t, http.StatusCreated); r.Header.Get("Idempotency-Replayed") != "" {
				t.Error("the response of a handler that panicked was stored")
			}
			b.wantEffects(1)
		})
	}
}

// A handler may see the loss in Lock.Err and return before its context has
// ended. That is an interruption too.
func TestLockLostSeenFirst(t *testing.T) {
	eachBank(t, func(t *testing.T, b *bank) {
		i, d := b.once(b.locks()), demand{key: "k-1"}
		s := b.serve(i, http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
			b.record(r)
			httptesting.Terminate(t, b.db)
			lock, _ := sqllock.FromContext(r.Context())
			lockertest.Eventually(t, "the lock is lost", func() bool { return lock.Err() != nil })
		}))
		mustAsk(t, s, d).Want(t, http.StatusServiceUnavailable)
		b.retry(b.serve(i, b.pay(http.StatusCreated)), d).Want(t, http.StatusCreated)
		b.wantEffects(1)
	})
}

// An early Unlock by the handler is no interruption: no response means 200.
func TestUnlockedEarly(t *testing.T) {
	eachBank(t, func(t *testing.T, b *bank) {
		s := b.serve(b.once(b.locks()), http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
			b.record(r)
			lock, _ := sqllock.FromContext(r.Context())
			if err := lock.Unlock(); err != nil {
				t.Error(err)
			}
		}))
		first := mustAsk(t, s, demand{key: "k-1"})
		first.Want(t, http.StatusOK)
		wantReplay(t, mustAsk(t, s, demand{key: "k-1"}), first)
		b.wantEffects(1)
	})
}
