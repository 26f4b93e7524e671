package idempotency_test

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/latchkey-go/latchkey/internal/httptesting"
	"github.com/latchkey-go/latchkey/internal/lockertest"
	"github.com/latchkey-go/latchkey/sqllock"
)

// Handlers that query the pool again do not use it up together with their own
// transactions. One connection is left, and the handlers go on one by one. Two
// Middlewares on one pool share it.
func TestPoolOfHandlers(t *testing.T) {
	const size, requests = 4, 16
	eachBank(t, func(t *testing.T, b *bank) {
		b.db.SetMaxOpenConns(size)
		var inside atomic.Int32
		most := make(chan struct{}) // closed when as many handlers run as the pool admits
		h := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			b.record(r)
			if inside.Add(1) == size-1 {
				close(most)
			}
			httptesting.Stay(r.Context(), most)
			if _, err := b.db.ExecContext(r.Context(), "SELECT 1"); err != nil {
				w.WriteHeader(http.StatusServiceUnavailable)
				return
			}
			w.WriteHeader(http.StatusCreated)
		})
		locks := sqllock.NewMemory()
		servers := []*httptest.Server{b.serve(b.once(locks), h), b.serve(b.once(locks), h)}
		var wg sync.WaitGroup
		for n := range requests {
			wg.Go(func() {
				d := demand{key: fmt.Sprint("k-", n)}
				if r, err := ask(t.Context(), servers[n%2], d); err != nil {
					t.Errorf("request %d: %v", n, err)
				} else {
					r.Want(t, http.StatusCreated)
				}
			})
		}
		wg.Wait()
		b.wantEffects(requests)
	})
}

// A request that finds the pool's share in use is rejected with Retry-After,
// and the log names the cause. The pool has a connection for others. The bound
// follows the current size of the pool.
func TestPoolShareInUse(t *testing.T) {
	eachBank(t, func(t *testing.T, b *bank) {
		b.db.SetMaxOpenConns(2)
		g := httptesting.NewGate(t)
		i := b.once(sqllock.NewMemory())
		gated, s := b.serve(i, g), b.serve(i, b.pay(http.StatusCreated))
		first := asking(t, gated, demand{key: "k-1"})
		httptesting.Receive(t, g.Inside, "first request")

		r := mustAsk(t, s, demand{key: "k-2"})
		r.Want(t, http.StatusServiceUnavailable)
		if r.Header.Get("Retry-After") == "" {
			t.Error("503 without Retry-After")
		}
		b.wantLog("1 of the pool's 2 connections")
		b.wantLog("SetMaxOpenConns")
		b.wantLog("Tx")
		b.wantEffects(0) // by the pool itself

		for n, size := range []int{3, 0} {
			b.db.SetMaxOpenConns(size)
			mustAsk(t, s, demand{key: fmt.Sprint("k-3-", n)}).Want(t, http.StatusCreated)
		}
		close(g.Leave)
		httptesting.Receive(t, first, "first response").Want(t, http.StatusOK)
	})
}

// A pool of one connection carries one transaction at a time, if its handler
// needs no other connection.
func TestPoolOfOne(t *testing.T) {
	eachBank(t, func(t *testing.T, b *bank) {
		b.db.SetMaxOpenConns(1)
		s := b.serve(b.once(sqllock.NewMemory()), b.pay(http.StatusCreated))
		var wg sync.WaitGroup
		for n := range 8 {
			wg.Go(func() {
				if r, err := ask(t.Context(), s, demand{key: fmt.Sprint("k-", n)}); err != nil {
					t.Error(err)
				} else {
					r.Want(t, http.StatusCreated)
				}
			})
		}
		wg.Wait()
		b.wantEffects(8)
	})
}

// With one connection a handler that queries the pool waits for itself until
// its client has left. The log names the cause, and the connection is free
// again.
func TestPoolOfOneStarves(t *testing.T) {
	eachBank(t, func(t *testing.T, b *bank) {
		b.db.SetMaxOpenConns(1)
		i := b.once(sqllock.NewMemory())
		ctx, leave := context.WithCancel(t.Context())
		defer leave()
		s := b.serve(i, http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
			waits := b.db.Stats().WaitCount
			stop := make(chan struct{})
			defer close(stop)
			go func() { // the client leaves when the handler waits
				for b.db.Stats().WaitCount == waits {
					select {
					case <-stop:
						return
					case <-time.After(time.Millisecond):
					}
				}
				leave()
			}()
			if _, err := b.db.ExecContext(r.Context(), "SELECT 1"); err == nil {
				t.Error("the handler got a second connection of one")
			}
		}))
		if _, err := ask(ctx, s, demand{key: "k-1"}); err == nil {
			t.Error("the client has a response")
		}
		lockertest.Eventually(t, "the cause is in the log", func() bool {
			return strings.Contains(b.log.String(), "pool's only connection")
		})
		b.wantLog("Tx")
		b.retry(b.serve(i, b.pay(http.StatusCreated)), demand{key: "k-1"}).Want(t, http.StatusCreated) // once the lock is free
	})
}

// With all connections in use a request does not wait for ever.
func TestPoolInUse(t *testing.T) {
	eachBank(t, func(t *testing.T, b *bank) {
		b.db.SetMaxOpenConns(1)
		g := httptesting.NewGate(t)
		s := b.serve(b.once(b.locks()), g)
		first := asking(t, s, demand{key: "k-1"})
		httptesting.Receive(t, g.Inside, "first request")
		mustAsk(t, s, demand{key: "k-2"}).Want(t, http.StatusServiceUnavailable)
		b.wantLog("SetMaxOpenConns")
		close(g.Leave)
		httptesting.Receive(t, first, "first response").Want(t, http.StatusOK)
		mustAsk(t, s, demand{key: "k-2"}).Want(t, http.StatusOK)
	})
}
