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

// querying returns a handler that pays and queries the pool again, as soon as
// three requests are in their transactions.
func (b *bank) querying(query func(context.Context) error) http.Handler {
	var inside atomic.Int32
	three := make(chan struct{})
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		b.record(r)
		if inside.Add(1) == 3 {
			close(three)
		}
		httptesting.Stay(r.Context(), three)
		if query(r.Context()) != nil {
			w.WriteHeader(http.StatusServiceUnavailable)
			return
		}
		w.WriteHeader(http.StatusCreated)
	})
}

// usePgx gives b the connections of a pgxpool.Pool, which it returns.
func (b *bank) usePgx(size int) *pgxpool.Pool {
	b.t.Helper()
	config, err := pgxpool.ParseConfig(b.dsn)
	if err != nil {
		b.t.Fatal(err)
	}
	config.MaxConns = int32(size) //nolint:gosec // 4 and 10
	pool, err := pgxpool.NewWithConfig(b.t.Context(), config)
	if err != nil {
		b.t.Fatal(err)
	}
	b.t.Cleanup(pool.Close)
	b.db = stdlib.OpenDBFromPool(pool)
	b.t.Cleanup(func() { _ = b.db.Close() })
	return pool
}

// Handlers that query the pool again do not use it up together with their own
// transactions. One connection is left, and the handlers go on one by one. That
// also holds for a pgxpool.Pool, which does not show its size to database/sql.
// A pool of one connection carries one transaction at a time, if its handler
// needs no other connection. Two Middlewares on one pool share it.
func TestPool(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		size     int
		pgx      bool
		requests int
	}{{1, false, 8}, {4, false, 16}, {4, true, 40}, {10, true, 40}} {
		t.Run(fmt.Sprint(tt.size, " connections, pgx ", tt.pgx), func(t *testing.T) {
			t.Parallel()
			b := oneBank(t)
			h := b.querying(b.db.PingContext)
			switch {
			case tt.pgx:
				h = b.querying(b.usePgx(tt.size).Ping)
			case tt.size == 1:
				h = b.pay(http.StatusCreated)
				fallthrough
			default:
				b.db.SetMaxOpenConns(tt.size)
			}
			locks := sqllock.NewMemory()
			b.askMany(tt.requests, b.serve(b.once(locks), h), b.serve(b.once(locks), h))
		})
	}
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
