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

// askMany sends n requests at once, to servers in turn. Each must take effect.
func (b *bank) askMany(n int, servers ...*httptest.Server) {
	b.t.Helper()
	var wg sync.WaitGroup
	for i := range n {
		wg.Go(func() {
			r, err := ask(b.t.Context(), servers[i%len(servers)], demand{key: fmt.Sprint("k-", i)})
			if err != nil || r.StatusCode != http.StatusCreated {
				b.t.Errorf("request %d: %v, %v; want 201", i, r.Response, err)
			}
		})
	}
	wg.Wait()
	b.wantEffects(n)
}

// Handlers that query the pool again do not use it up together with their own
// transactions. One connection is left, and the handlers go on one by one. Two
// Middlewares on one pool share it.
func TestPoolOfHandlers(t *testing.T) {
	t.Parallel()
	const size = 4
	b := oneBank(t)
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
	b.askMany(16, b.serve(b.once(locks), h), b.serve(b.once(locks), h))
}

// A pool of one connection carries one transaction at a time, if its handler
// needs no other connection.
func TestPoolOfOne(t *testing.T) {
	eachBank(t, func(t *testing.T, b *bank) {
		b.db.SetMaxOpenConns(1)
		b.askMany(8, b.serve(b.once(sqllock.NewMemory()), b.pay(http.StatusCreated)))
	})
}

// A request that finds the pool's share in use does not wait for ever: it is
// rejected with Retry-After, and the log names the cause. A pool of two has a
// connection for others. The bound follows the current size of the pool.
func TestPoolShareInUse(t *testing.T) {
	t.Parallel()
	for size, cause := range map[int]string{1: "the only connection of the pool", 2: "1 of the pool's 2 connections"} {
		t.Run(fmt.Sprint(size), func(t *testing.T) {
			t.Parallel()
			b := oneBank(t)
			b.db.SetMaxOpenConns(size)
			g, locks := httptesting.NewGate(t), sqllock.NewMemory()
			s := b.serve(b.once(locks), b.pay(http.StatusCreated))
			first := asking(t, b.serve(b.once(locks), g), demand{key: "k-1"})
			httptesting.Receive(t, g.Inside, "first request")
			short := b.serve(b.once(locks, shortBounds()), b.pay(http.StatusCreated))
			wantLater(t, mustAsk(t, short, demand{key: "k-2"}), http.StatusServiceUnavailable)
			b.wantLog(cause, "SetMaxOpenConns", "Tx")
			if size > 1 {
				b.wantEffects(0) // by the pool itself
			}
			for _, size := range []int{3, 0} {
				b.db.SetMaxOpenConns(size)
				mustAsk(t, s, demand{key: fmt.Sprint("k-3-", size)}).Want(t, http.StatusCreated)
			}
			close(g.Leave)
			httptesting.Receive(t, first, "first response").Want(t, http.StatusOK)
			mustAsk(t, s, demand{key: "k-2"}).Want(t, http.StatusCreated)
		})
	}
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
