package httpmw_test

import (
	"context"
	"errors"
	"io"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/latchkey-go/latchkey/httpmw"
	"github.com/latchkey-go/latchkey/internal/dbtest"
	"github.com/latchkey-go/latchkey/internal/httptesting"
	"github.com/latchkey-go/latchkey/internal/lockertest"
	"github.com/latchkey-go/latchkey/internal/pgtest"
	"github.com/latchkey-go/latchkey/ratelimit"
	"github.com/latchkey-go/latchkey/sqllock"
)

// A census counts the requests inside a handler, for each id of each level.
type census struct {
	t      *testing.T
	mu     sync.Mutex
	inside map[string]int
}

// enter counts one more of name, of which there may be limit.
func (c *census) enter(name string, limit int) (leave func()) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.inside[name]++; c.inside[name] > limit {
		c.t.Errorf("%d requests of %s are inside, want %d at most", c.inside[name], name, limit)
	}
	return func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		c.inside[name]--
	}
}

// abuses are what handlers do to a request, by its number.
var abuses = []func(w http.ResponseWriter, r *http.Request){
	func(w http.ResponseWriter, _ *http.Request) { lengthy([]byte("done"), true)(w, nil) },
	func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) },
	func(w http.ResponseWriter, r *http.Request) {
		if conn, _, err := http.NewResponseController(w).Hijack(); err == nil {
			_ = conn.Close()
		}
	},
	func(w http.ResponseWriter, r *http.Request) {
		_, err := io.Copy(io.Discard, http.MaxBytesReader(w, r.Body, 10))
		if tooLarge := (*http.MaxBytesError)(nil); errors.As(err, &tooLarge) {
			w.WriteHeader(http.StatusRequestEntityTooLarge)
		}
	},
	func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(http.StatusEarlyHints)
		w.Header().Set("Trailer", "Sum")
		_, _ = io.WriteString(w, "body")
		w.Header().Set("Sum", "1")
	},
	func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(w, r.Body)
		flush(w)
	},
	func(http.ResponseWriter, *http.Request) {},
}

// Whatever handlers and clients do, no level admits more than its limit, and in
// the end no place is held and no request waits.
func TestStackUnderAbuse(t *testing.T) {
	t.Parallel()
	lockers := map[string]sqllock.Locker{
		"memory":     sqllock.NewMemory(),
		"PostgreSQL": httptesting.Session(t, dbtest.Open(t, "pgx", pgtest.Database(t))),
	}
	for name, locks := range lockers {
		for _, protocol := range httptesting.Protocols {
			t.Run(name+"/"+protocol.Name, func(t *testing.T) {
				t.Parallel()
				abuse(t, locks, protocol)
			})
		}
	}
}

func abuse(t *testing.T, locks sqllock.Locker, protocol httptesting.Protocol) {
	ns := func(s string) sqllock.Namespace { return sqllock.Namespace(s + " " + protocol.Name) }
	wait := ratelimit.WithWait(20*time.Millisecond, 4)
	limiters := []*ratelimit.Limiter{
		ratelimit.OneAtATime(locks, ns("user"), wait),
		ratelimit.AtMost(2, locks, ns("tenant"), wait),
		ratelimit.AtMost(3, locks, ns("total")),
	}
	m := httpmw.NewStack([]httpmw.Level{
		{Limiter: limiters[0], Key: httpmw.Header(user)},
		{Limiter: limiters[1], Key: httpmw.Header(tenant)},
		{Limiter: limiters[2], Key: constant("all", nil)},
	})
	c := &census{t: t, inside: map[string]int{}}
	var served atomic.Int32
	s := protocol.Serve(t, m.Handler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		served.Add(1)
		defer c.enter("user "+r.Header.Get(user), 1)()
		defer c.enter("tenant "+r.Header.Get(tenant), 2)()
		defer c.enter("total", 3)()
		n, _ := strconv.Atoi(r.Header.Get("N"))
		abuses[n%len(abuses)](w, r)
	})))
	var wg sync.WaitGroup
	for client := range 8 {
		wg.Go(func() {
			for n := range 60 {
				send(t, s, client%4, client%2, client*n)
			}
		})
	}
	wg.Wait()
	for _, l := range limiters {
		lockertest.Eventually(t, "no place of "+string(l.Namespace())+" is left", func() bool {
			stats := l.Stats()
			return stats.Active == 0 && stats.Queued == 0
		})
	}
	if served.Load() < 20 {
		t.Errorf("only %d requests were served", served.Load())
	}
	for who := range 4 {
		all, err := ratelimit.AcquireAll(t.Context(),
			ratelimit.Level{Limiter: limiters[0], ID: strconv.Itoa(who)},
			ratelimit.Level{Limiter: limiters[1], ID: strconv.Itoa(who % 2)},
			ratelimit.Level{Limiter: limiters[2], ID: "all"})
		if err != nil {
			t.Errorf("afterwards: %v", err)
		}
		_ = all.Unlock()
	}
}

// send sends the nth request of a client, which may leave at any moment.
func send(t *testing.T, s *httptest.Server, who, of, n int) {
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	if n%3 == 0 {
		defer time.AfterFunc(rand.N(2*time.Millisecond), cancel).Stop()
	}
	method, body := http.MethodPost, strings.Repeat("x", n%30)
	if n%5 == 0 {
		method, body = http.MethodHead, ""
	}
	req, err := http.NewRequestWithContext(ctx, method, s.URL, strings.NewReader(body))
	if err != nil {
		t.Error(err)
		return
	}
	req.Header.Set(user, strconv.Itoa(who))
	req.Header.Set(tenant, strconv.Itoa(of))
	req.Header.Set("N", strconv.Itoa(n))
	r, err := s.Client().Do(req)
	if err != nil {
		return // the handler has broken the connection, or the client has left
	}
	defer r.Body.Close()
	_, _ = io.Copy(io.Discard, r.Body)
}
