package idempotency_test

import (
	"errors"
	"net/http"
	"testing"

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
	r.want(t, http.StatusServiceUnavailable)
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
	mustAsk(t, s, demand{}).want(t, http.StatusBadRequest)
	first := mustAsk(t, s, demand{key: "k-1"})
	first.want(t, http.StatusCreated)
	mustAsk(t, s, demand{key: "k-1"}).wantReplay(t, first)
	b.wantEffects(1)
}

// A duplicate that is admitted without a lock still waits for the first
// request, and gets its response. The primary key of the table makes it wait.
func TestFailsOpen(t *testing.T) {
	eachBank(t, func(t *testing.T, b *bank) {
		g := newGate(t)
		away := ratelimit.OneAtATime(locker{err: sqllock.ErrUnavailable}, "pay", ratelimit.WithFailOpen())
		s := b.serve(b.onceBy(away), http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			b.record(r)
			g.ServeHTTP(w, r)
		}))
		first := asking(t, s, demand{key: "k-1"})
		receive(t, g.inside, "first request")
		mustAsk(t, s, demand{key: "k-1"}).want(t, http.StatusConflict) // it has waited without success
		second := asking(t, s, demand{key: "k-1"})
		lockertest.Eventually(t, "the duplicate waits", func() bool { return b.waiters() == 1 })
		close(g.leave)
		replay := receive(t, second, "second response")
		replay.wantReplay(t, receive(t, first, "first response"))
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
		g := newGate(t)
		away := ratelimit.OneAtATime(locker{err: sqllock.ErrUnavailable}, "pay", ratelimit.WithFailOpen())
		s := b.serve(b.onceBy(away), http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			b.record(r)
			if b.runs.Load() == 1 {
				g.inside <- r
				stay(g.test, g.leave)
				w.WriteHeader(http.StatusInternalServerError)
			}
		}))
		first := asking(t, s, demand{key: "k-1"})
		receive(t, g.inside, "first request")
		second := asking(t, s, demand{key: "k-1"})
		lockertest.Eventually(t, "the duplicate waits", func() bool { return b.waiters() == 1 })
		close(g.leave)
		receive(t, first, "first response").want(t, http.StatusInternalServerError)
		receive(t, second, "second response").want(t, http.StatusOK)
		b.wantEffects(1)
	})
}

// A 402 is stored in the transaction whose effect is rolled back. No other
// request comes between.
func TestStoredErrorIsNotOvertaken(t *testing.T) {
	eachBank(t, func(t *testing.T, b *bank) {
		g := newGate(t)
		away := ratelimit.OneAtATime(locker{err: sqllock.ErrUnavailable}, "pay", ratelimit.WithFailOpen())
		s := b.serve(b.onceBy(away), http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			b.record(r)
			if b.runs.Load() == 1 {
				g.inside <- r
				stay(g.test, g.leave)
				w.WriteHeader(http.StatusPaymentRequired)
			}
		}))
		first := asking(t, s, demand{key: "k-1"})
		receive(t, g.inside, "first request")
		second := asking(t, s, demand{key: "k-1"})
		lockertest.Eventually(t, "the duplicate waits", func() bool { return b.waiters() == 1 })
		close(g.leave)
		one, two := receive(t, first, "first response"), receive(t, second, "second response")
		one.want(t, http.StatusPaymentRequired)
		two.wantReplay(t, one)
		b.wantEffects(0)
	})
}

// After a lock is lost while the handler runs, another instance is admitted. It
// waits for the transaction, and there is one effect.
func TestLockLost(t *testing.T) {
	eachBank(t, func(t *testing.T, b *bank) {
		g := newGate(t)
		h := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			b.record(r)
			g.inside <- r
			<-r.Context().Done()
			lock, _ := sqllock.FromContext(r.Context())
			if !errors.Is(lock.Err(), sqllock.ErrLost) {
				t.Errorf("the lock's error is %v, want ErrLost", lock.Err())
			}
			stay(g.test, g.leave)
			w.WriteHeader(http.StatusCreated)
		})
		first := asking(t, b.serve(b.once(b.locks()), h), demand{key: "k-1"})
		receive(t, g.inside, "first request")
		terminate(t, b.db)
		second := asking(t, b.serve(b.once(b.locks()), h), demand{key: "k-1"})
		lockertest.Eventually(t, "the duplicate waits", func() bool { return b.waiters() == 1 })
		close(g.leave)
		response := receive(t, first, "first response")
		response.want(t, http.StatusCreated)
		receive(t, second, "second response").wantReplay(t, response)
		b.wantEffects(1)
	})
}
