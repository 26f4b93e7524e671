package idempotency_test

import (
	"errors"
	"net/http"
	"testing"

	"github.com/latchkey-go/latchkey/internal/httptesting"
	"github.com/latchkey-go/latchkey/internal/lockertest"
	"github.com/latchkey-go/latchkey/ratelimit"
	"github.com/latchkey-go/latchkey/sqllock"
)

import ()

// Without locks a request has no effect.
func TestFailsClosed(t *testing.T) {
	t.Parallel()
	b := oneBank(t)
	s := b.serve(b.once(locker{err: sqllock.ErrUnavailable}), b.pay(http.StatusCreated))
	r := mustAsk(t, s, demand{key: "k-1"})
	r.Want(t, http.StatusServiceUnavailable)
	if r.Header.Get("Retry-After") == "" {
		t.Error("503 without Retry-After")
	}
	b.wantEffects(0)
	b.wantLog("unavailable")
}

// A dry run admits every request, with or without a lock: the table makes sure
// of one effect. Without a key the request is rejected all the same.
func TestDryRun(t *testing.T) {
	t.Parallel()
	b := oneBank(t)
	l := ratelimit.OneAtATime(locker{err: sqllock.ErrHeld}, "pay", ratelimit.WithDryRun())
	s := b.serve(b.onceBy(l), b.pay(http.StatusCreated))
	mustAsk(t, s, demand{}).Want(t, http.StatusBadRequest)
	first := mustAsk(t, s, demand{key: "k-1"})
	first.Want(t, http.StatusCreated)
	wantReplay(t, mustAsk(t, s, demand{key: "k-1"}), first)
	b.wantEffects(1)
}

// A duplicate that is admitted without a lock still waits for the first
// request, and gets its response. The primary key of the table makes it wait.
func TestFailsOpen(t *testing.T) {
	eachBank(t, func(t *testing.T, b *bank) {
		g := httptesting.NewGate(t)
		away := ratelimit.OneAtATime(locker{err: sqllock.ErrUnavailable}, "pay", ratelimit.WithFailOpen())
		s := b.serve(b.onceBy(away), http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			b.record(r)
			g.ServeHTTP(w, r)
		}))
		first := asking(t, s, demand{key: "k-1"})
		httptesting.Receive(t, g.Inside, "first request")
		mustAsk(t, s, demand{key: "k-1"}).Want(t, http.StatusConflict) // it has waited without success
		second := asking(t, s, demand{key: "k-1"})
		lockertest.Eventually(t, "the duplicate waits", func() bool { return b.waiters() == 1 })
		close(g.Leave)
		replay := httptesting.Receive(t, second, "second response")
		wantReplay(t, replay, httptesting.Receive(t, first, "first response"))
		b.wantEffects(1)
		if n := b.runs.Load(); n != 1 {
			t.Errorf("the handler ran %d times", n)
		}
	})
}

// If the first request then rolls back, the duplicate that waited does the
// effect.
func TestFailsOpenAfterRollback(t *testing.T) {
	eachBank(t, func(t *testing.T, b *bank) {
		g := httptesting.NewGate(t)
		away := ratelimit.OneAtATime(locker{err: sqllock.ErrUnavailable}, "pay", ratelimit.WithFailOpen())
		s := b.serve(b.onceBy(away), http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			b.record(r)
			if b.runs.Load() == 1 {
				g.Inside <- r
				g.Stay()
				w.WriteHeader(http.StatusInternalServerError)
			}
		}))
		first := asking(t, s, demand{key: "k-1"})
		httptesting.Receive(t, g.Inside, "first request")
		second := asking(t, s, demand{key: "k-1"})
		lockertest.Eventually(t, "the duplicate waits", func() bool { return b.waiters() == 1 })
		close(g.Leave)
		httptesting.Receive(t, first, "first response").Want(t, http.StatusInternalServerError)
		httptesting.Receive(t, second, "second response").Want(t, http.StatusOK)
		b.wantEffects(1)
	})
}

// A 402 is stored in the transaction whose effect is rolled back. No other
// request comes between.
func TestStoredErrorIsNotOvertaken(t *testing.T) {
	eachBank(t, func(t *testing.T, b *bank) {
		g := httptesting.NewGate(t)
		away := ratelimit.OneAtATime(locker{err: sqllock.ErrUnavailable}, "pay", ratelimit.WithFailOpen())
		s := b.serve(b.onceBy(away), http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			b.record(r)
			if b.runs.Load() == 1 {
				g.Inside <- r
				g.Stay()
				w.WriteHeader(http.StatusPaymentRequired)
			}
		}))
		first := asking(t, s, demand{key: "k-1"})
		httptesting.Receive(t, g.Inside, "first request")
		second := asking(t, s, demand{key: "k-1"})
		lockertest.Eventually(t, "the duplicate waits", func() bool { return b.waiters() == 1 })
		close(g.Leave)
		one, two := httptesting.Receive(t, first, "first response"), httptesting.Receive(t, second, "second response")
		one.Want(t, http.StatusPaymentRequired)
		wantReplay(t, two, one)
		b.wantEffects(0)
	})
}

// After a lock is lost while the handler runs, another instance is admitted. It
// waits for the transaction, and there is one effect.
func TestLockLost(t *testing.T) {
	eachBank(t, func(t *testing.T, b *bank) {
		g := httptesting.NewGate(t)
		h := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			b.record(r)
			g.Inside <- r
			<-r.Context().Done()
			lock, _ := sqllock.FromContext(r.Context())
			if !errors.Is(lock.Err(), sqllock.ErrLost) {
				t.Errorf("the lock's error is %v, want ErrLost", lock.Err())
			}
			g.Stay()
			w.WriteHeader(http.StatusCreated)
		})
		first := asking(t, b.serve(b.once(b.locks()), h), demand{key: "k-1"})
		httptesting.Receive(t, g.Inside, "first request")
		httptesting.Terminate(t, b.db)
		second := asking(t, b.serve(b.once(b.locks()), h), demand{key: "k-1"})
		lockertest.Eventually(t, "the duplicate waits", func() bool { return b.waiters() == 1 })
		close(g.Leave)
		response := httptesting.Receive(t, first, "first response")
		response.Want(t, http.StatusCreated)
		wantReplay(t, httptesting.Receive(t, second, "second response"), response)
		b.wantEffects(1)
	})
}
