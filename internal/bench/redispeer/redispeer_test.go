package redispeer

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/latchkey-go/latchkey/internal/bench/servers"
	"github.com/latchkey-go/latchkey/internal/pgtest"
)

// limiters returns so many Limiters on one Redis, with a client each.
func limiters(t *testing.T, n int) []*Limiter {
	t.Helper()
	server, err := servers.StartRedis(t.Context())
	if err != nil {
		pgtest.Fatal(t, err)
	}
	t.Cleanup(func() { _ = server.Close() })
	all := make([]*Limiter, n)
	for i := range all {
		client := redis.NewClient(&redis.Options{Addr: server.Addr})
		t.Cleanup(func() { _ = client.Close() })
		all[i] = New(client, "test", time.Minute)
	}
	return all
}

// Of many that want one id at once, through two instances, one is inside at a
// time.
func TestExcludes(t *testing.T) {
	instances := limiters(t, 2)
	var inside, overlaps, entries atomic.Int32
	var wg sync.WaitGroup
	for i := range 16 {
		wg.Go(func() {
			for mine := 0; mine < 20; {
				give, err := instances[i%2].Acquire(t.Context(), "ada")
				if errors.Is(err, ErrBusy) {
					continue
				}
				if err != nil {
					t.Error(err)
					return
				}
				mine++
				entries.Add(1)
				if inside.Add(1) > 1 {
					overlaps.Add(1)
				}
				inside.Add(-1)
				if err := give(); err != nil {
					t.Error(err)
					return
				}
			}
		})
	}
	wg.Wait()
	if overlaps.Load() > 0 || entries.Load() != 16*20 {
		t.Errorf("%d overlaps in %d entries", overlaps.Load(), entries.Load())
	}
}

// Who has lost an id does not free it for who holds it now.
func TestLateRelease(t *testing.T) {
	l := limiters(t, 1)[0]
	late, err := l.Acquire(t.Context(), "ada")
	if err != nil {
		t.Fatal(err)
	}
	if err := l.client.Del(t.Context(), l.prefix+"ada").Err(); err != nil { // as its lifetime would
		t.Fatal(err)
	}
	if _, err := l.Acquire(t.Context(), "ada"); err != nil {
		t.Fatal(err)
	}
	if err := late(); err != nil {
		t.Fatal(err)
	}
	if _, err := l.Acquire(t.Context(), "ada"); !errors.Is(err, ErrBusy) {
		t.Errorf("after a late release: %v, want ErrBusy", err)
	}
}

// A request within a request is refused, and the next one is not.
func TestServers(t *testing.T) {
	l := limiters(t, 1)[0]
	serve := func(h http.Handler) int {
		r := httptest.NewRequest(http.MethodGet, "/", nil)
		r.Header.Set("User", "ada")
		w := httptest.NewRecorder()
		h.ServeHTTP(w, r)
		return w.Code
	}
	inner := l.Handler("User", http.NotFoundHandler())
	outer := l.Handler("User", http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(serve(inner)) }))
	for range 2 {
		if code := serve(outer); code != http.StatusTooManyRequests {
			t.Errorf("a request within a request: %d, want 429", code)
		}
	}

	call := l.UnaryServerInterceptor("user")
	ctx := metadata.NewIncomingContext(t.Context(), metadata.Pairs("user", "ada"))
	within := func(ctx context.Context, req any) (any, error) {
		return call(ctx, req, &grpc.UnaryServerInfo{}, func(context.Context, any) (any, error) { return nil, nil })
	}
	for range 2 {
		if _, err := call(ctx, nil, &grpc.UnaryServerInfo{}, within); status.Code(err) != codes.ResourceExhausted {
			t.Errorf("a call within a call: %v, want ResourceExhausted", err)
		}
	}
}
