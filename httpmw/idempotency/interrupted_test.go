package idempotency_test

import (
	"context"
	"errors"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
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
	{"client-leaves", false, context.Canceled, func(_ *bank, leave, _ context.CancelFunc) { leave() }},
	{"lock-lost", true, sqllock.ErrLost, func(b *bank, _, _ context.CancelFunc) { httptesting.Terminate(b.t, b.db) }},
	{"shutdown", true, context.Canceled, func(_ *bank, _, shutdown context.CancelFunc) { shutdown() }},
}

// ends are how a handler ends after the end of its context, when it has done
// half of its effect.
var ends = []struct {
	key    string
	end    http.HandlerFunc
	status int  // of the response
	done   bool // the effect is committed, and the response stored
	told   bool // the reject handler hears of an interruption
}{
	{"nothing", func(http.ResponseWriter, *http.Request) {}, 503, false, true},
	{"1xx-alone", func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusProcessing) }, 503, false, true},

	// A response of success is written when the effect is complete.
	{"200-alone", func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusOK) }, 200, true, false},
	{"body-alone", func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "paid") }, 200, true, false},

	// An error may be due to the interruption alone: it is never stored.
	{"402", func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusPaymentRequired) }, 402, false, false},
}

// A handler that is interrupted has its effect only if it responds with success
// all the same. Then a retry gets that response. Otherwise nothing is committed
// or stored, and a retry runs the handler.
func TestInterrupted(t *testing.T) {
	eachBank(t, func(t *testing.T, b *bank) {
		for _, in := range interruptions {
			b.do("DELETE FROM ledger")
			reasons := make(chan error, 1)
			told := idempotency.WithRejection(httpmw.WithRejectHandler(func(_ http.ResponseWriter, _ *http.Request, err error) {
				if errors.Is(err, httpmw.ErrInterrupted) { // and not a retry that comes too early
					reasons <- err
				}
			}))
			i := b.once(b.locks(), told, idempotency.WithStoredErrors(func(int) bool { return true }))
			pay := b.serve(i, b.pay(http.StatusCreated))
			for n, tt := range ends {
				d := demand{key: in.name + "-" + tt.key, body: "debit"}
				r := b.interrupt(in, i, tt.end, d)
				if r != nil {
					if r.StatusCode != tt.status || r.Header.Get("X-Receipt") != "" {
						t.Errorf("%s: status %d, header %v; want %d and nothing of the handler's", d.key, r.StatusCode, r.Header, tt.status)
					}
					if tt.told && (r.Header.Get("Retry-After") == "" || !strings.Contains(r.Text, "Use the same idempotency key")) {
						t.Errorf("%s: %v %s, want Retry-After, and the advice to keep the key", d.key, r.Header, r.Text)
					}
				} else if in.clientStays {
					t.Errorf("%s: no response", d.key)
				}
				if tt.told {
					if err := httptesting.Receive(t, reasons, "reason"); !errors.Is(err, in.cause) {
						t.Errorf("%s: reason %v, want %v", d.key, err, in.cause)
					}
				}
				if again := b.retry(pay, d); isReplay(again) != tt.done || !tt.done && again.StatusCode != http.StatusCreated {
					t.Errorf("%s: the retry has %d, replayed: %v; want a replay: %v", d.key, again.StatusCode, isReplay(again), tt.done)
				}
				b.wantEffects(n + 1)
			}
		}
	})
}

// interrupt sends d to a handler behind i. The handler does half of its effect,
// is interrupted, and ends with end. The reply is nil if there is none.
func (b *bank) interrupt(in interruption, i *idempotency.Middleware, end http.HandlerFunc, d demand) *httptesting.Reply {
	b.t.Helper()
	base, shutdown := context.WithCancel(b.t.Context())
	defer shutdown()
	inside := make(chan struct{}, 1)
	mux := http.NewServeMux()
	mux.Handle("/", i.Handler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		b.record(r)
		inside <- struct{}{}
		<-r.Context().Done()
		end(w, r)
	})))
	s := httptest.NewUnstartedServer(mux)
	s.Config.ErrorLog = log.New(io.Discard, "", 0)
	s.Config.BaseContext = func(net.Listener) context.Context { return base }
	s.Start()
	defer s.Close()
	s.Client().CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	client, leave := context.WithCancel(b.t.Context())
	defer leave()
	replies := make(chan *httptesting.Reply, 1)
	go func() {
		r, err := ask(client, s, d)
		if err != nil {
			replies <- nil
			return
		}
		replies <- &r
	}()
	httptesting.Receive(b.t, inside, "start of the handler")
	in.now(b, leave, shutdown)
	return httptesting.Receive(b.t, replies, "end of the request")
}

// retry sends d to s until no earlier lock or transaction blocks it.
func (b *bank) retry(s *httptest.Server, d demand) (r httptesting.Reply) {
	b.t.Helper()
	s.Client().CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	lockertest.Eventually(b.t, "the retry is served", func() bool {
		r = mustAsk(b.t, s, d)
		return r.StatusCode != http.StatusConflict && r.StatusCode != http.StatusServiceUnavailable
	})
	return r
}

// A handler may see the loss in Lock.Err and return before its context has
// ended. That is an interruption too.
func TestLockLostSeenFirst(t *testing.T) {
	t.Parallel()
	b := oneBank(t)
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
}
