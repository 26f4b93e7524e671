package idempotency_test

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/jackc/pgx/v5/stdlib"

	"github.com/latchkey-go/latchkey/internal/httptesting"
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

// querying returns a handler that pays and queries the pool again, as soon as n
// requests are in their transactions.
func (b *bank) querying(n int32, query func(context.Context) error) http.Handler {
	var inside atomic.Int32
	most := make(chan struct{})
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		b.record(r)
		if inside.Add(1) == n {
			close(most)
		}
		httptesting.Stay(r.Context(), most)
		if query(r.Context()) != nil {
			w.WriteHeader(http.StatusServiceUnavailable)
			return
		}
		w.WriteHeader(http.StatusCreated)
	})
}

// Handlers that query the pool again do not use it up together with their own
// transactions. One connection is left, and the handlers go on one by one. Two
// Middlewares on one pool share it.
func TestPoolOfHandlers(t *testing.T) {
	t.Parallel()
	b := oneBank(t)
	b.db.SetMaxOpenConns(4)
	h := b.querying(3, b.db.PingContext)
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
// connection for others.
func TestPoolShareInUse(t *testing.T) {
	t.Parallel()
	for _, size := range []int{1, 2} {
		t.Run(fmt.Sprint(size), func(t *testing.T) {
			t.Parallel()
			b := oneBank(t)
			b.db.SetMaxOpenConns(size)
			g, locks := httptesting.NewGate(t), sqllock.NewMemory()
			first := asking(t, b.serve(b.once(locks), g), demand{key: "k-1"})
			httptesting.Receive(t, g.Inside, "first request")
			short := b.serve(b.once(locks, shortBounds()), b.pay(http.StatusCreated))
			wantLater(t, mustAsk(t, short, demand{key: "k-2"}), http.StatusServiceUnavailable)
			b.wantLog("all 1 connections of the pool that they may use", "SetMaxOpenConns", "Tx")
			if size > 1 {
				b.wantEffects(0) // by the pool itself
			}
			close(g.Leave)
			httptesting.Receive(t, first, "first response").Want(t, http.StatusOK)
			mustAsk(t, b.serve(b.once(locks), b.pay(http.StatusCreated)), demand{key: "k-2"}).Want(t, http.StatusCreated)
		})
	}
}

// A pgxpool.Pool does not show its size to database/sql. Handlers that query it
// do not use it up either, with pgx's smallest default and with more.
func TestPoolOfPgx(t *testing.T) {
	t.Parallel()
	for _, size := range []int32{4, 10} {
		t.Run(fmt.Sprint(size), func(t *testing.T) {
			t.Parallel()
			b := oneBank(t)
			config, err := pgxpool.ParseConfig(b.dsn)
			if err != nil {
				t.Fatal(err)
			}
			config.MaxConns = size
			pool, err := pgxpool.NewWithConfig(t.Context(), config)
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(pool.Close)
			b.db = stdlib.OpenDBFromPool(pool)
			t.Cleanup(func() { _ = b.db.Close() })
			b.askMany(40, b.serve(b.once(sqllock.NewMemory()), b.querying(3, func(ctx context.Context) error {
				_, err := pool.Exec(ctx, "SELECT 1")
				return err
			})))
		})
	}
}
