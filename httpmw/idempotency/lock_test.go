package idempotency_test

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/latchkey-go/latchkey/httpmw"
	"github.com/latchkey-go/latchkey/internal/httptesting"
	"github.com/latchkey-go/latchkey/internal/lockertest"
	"github.com/latchkey-go/latchkey/ratelimit"
	"github.com/latchkey-go/latchkey/sqllock"
)

// While a request is in flight, others with its key are rejected in every
// instance. With WithWait they wait. After that they get its response.
func TestInFlight(t *testing.T) {
	eachBank(t, func(t *testing.T, b *bank) {
		g := httptesting.NewGate(t)
		var servers, patient []*httptest.Server
		var sessions []*sqllock.Session
		for range 2 {
			s := b.locks()
			sessions = append(sessions, s)
			servers = append(servers, b.serve(b.once(s), b.gated(g)))
			patient = append(patient, b.serve(b.onceBy(ratelimit.OneAtATime(s, "pay", ratelimit.WithWait(time.Minute, 10))), b.gated(g)))
		}
		d := demand{key: "k-1"}
		first := asking(t, servers[0], d)
		httptesting.Receive(t, g.Inside, "first request")
		var waiting []<-chan httptesting.Reply
		for i := range servers {
			r := mustAsk(t, servers[i], d)
			wantLater(t, r, http.StatusConflict)
			httptesting.WantProblem(t, r.Header, r.Text, http.StatusConflict)
			waiting = append(waiting, asking(t, patient[i], d))
			lockertest.Eventually(t, "the duplicate waits", func() bool { return sessions[i].Stats().Waiting == 1 })
		}
		close(g.Leave)
		response := httptesting.Receive(t, first, "first response")
		for _, c := range waiting {
			wantReplay(t, httptesting.Receive(t, c, "response to a duplicate"), response)
		}
		wantReplay(t, mustAsk(t, servers[1], d), response)
		b.wantEffects(1)
	})
}

// Without locks a request has no effect. A dry run admits every request, with or
// without a lock: the table makes sure of one effect. Without a key the request is
// rejected all the same.
func TestWithoutLocks(t *testing.T) {
	t.Parallel()
	b := oneBank(t)
	serve := func(err error, opts ...ratelimit.Option) *httptest.Server {
		return b.serve(b.onceBy(ratelimit.OneAtATime(httptesting.Failing{Err: err}, "pay", opts...)), b.pay(http.StatusCreated))
	}
	wantLater(t, mustAsk(t, serve(sqllock.ErrUnavailable), demand{key: "k-1"}), http.StatusServiceUnavailable)
	b.wantEffects(0)
	b.wantLog("unavailable")

	s := serve(sqllock.ErrHeld, ratelimit.WithDryRun())
	mustAsk(t, s, demand{}).Want(t, http.StatusBadRequest)
	first := mustAsk(t, s, demand{key: "k-1"})
	first.Want(t, http.StatusCreated)
	wantReplay(t, mustAsk(t, s, demand{key: "k-1"}), first)
	b.wantEffects(1)
}

// A duplicate that is admitted without a lock does not wait for ever for the
// transaction of the first. Package internal/databases has more cases. The limiter's Observer gets an event for each request that the Middleware
// rejects.
func TestFailsOpenWithoutSuccess(t *testing.T) {
	t.Parallel()
	b := oneBank(t)
	refused := make(chan error, 100)
	l := away(ratelimit.WithObserver(func(_ context.Context, e ratelimit.Event) {
		if e.Result != ratelimit.FailedOpen {
			refused <- e.Err
		}
	}))
	g := httptesting.NewGate(t)
	first := asking(t, b.serve(b.onceBy(away()), b.gated(g)), demand{key: "k-1"})
	httptesting.Receive(t, g.Inside, "first request")
	s := b.serve(b.onceBy(l, shortBounds()), b.pay(http.StatusCreated))
	mustAsk(t, s, demand{}).Want(t, http.StatusBadRequest)
	var r httptesting.Reply
	lockertest.Eventually(t, "the duplicate has waited", func() bool { // and not for the server
		r = mustAsk(t, s, demand{key: "k-1"})
		return r.StatusCode != http.StatusServiceUnavailable
	})
	if r.Want(t, http.StatusConflict); r.Header.Get("Retry-After") != "2" {
		t.Errorf("Retry-After %q, want 2: the lock knows no better", r.Header.Get("Retry-After"))
	}
	b.wantLog("admitted next to another")
	close(g.Leave)
	stored := httptesting.Receive(t, first, "first response")
	wantReplay(t, mustAsk(t, s, demand{key: "k-1"}), stored)
	for _, want := range []error{httpmw.ErrNoKey, ratelimit.ErrBusy} {
		if err := httptesting.Receive(t, refused, "word of a refusal"); !errors.Is(err, want) {
			t.Errorf("the Observer hears of %v, want %v", err, want)
		}
	}
}

// A handler that releases the lock early, and writes nothing, has not been
// interrupted. That means 200, and is stored.
func TestUnlockedEarly(t *testing.T) {
	t.Parallel()
	b := oneBank(t)
	s := b.serve(b.once(sqllock.NewMemory()), http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
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
}

// When the client gets the first byte, everything is committed and the lock is
// released. So the client may send the next request at once, to any instance.
func TestFirstByte(t *testing.T) {
	eachBank(t, func(t *testing.T, b *bank) {
		there := b.serve(b.once(b.locks()), b.pay(http.StatusCreated))
		here := b.serve(b.once(b.locks()), b.pay(http.StatusCreated))
		meanwhile := make(chan httptesting.Reply, 1)
		around := httptesting.Serve(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			here.Config.Handler.ServeHTTP(beginning{w, func() {
				if response, err := ask(t.Context(), there, demand{key: "k-1"}); err == nil {
					meanwhile <- response
				}
			}}, r)
		}))
		first := mustAsk(t, around, demand{key: "k-1"})
		wantReplay(t, httptesting.Receive(t, meanwhile, "response of the meantime"), first)
	})
}

// A beginning calls a func before the response begins.
type beginning struct {
	http.ResponseWriter
	begins func()
}

func (w beginning) WriteHeader(status int) {
	w.begins()
	w.ResponseWriter.WriteHeader(status)
}
