package httpmw_test

import (
	"context"
	"errors"
	"io"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"runtime"
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

// tenant is the header with the tenant of a request.
const tenant = "X-Tenant"

// products returns three levels over locks: one request of a user, two of a
// tenant and three in all.
func products(locks sqllock.Locker, policy ...ratelimit.Option) []httpmw.Level {
	return []httpmw.Level{
		{Limiter: ratelimit.OneAtATime(locks, "user", policy...), Key: httpmw.Header(user)},
		{Limiter: ratelimit.AtMost(2, locks, "tenant", policy...), Key: httpmw.Header(tenant)},
		{Limiter: ratelimit.AtMost(3, locks, "total", policy...), Key: constant("all", nil)},
	}
}

// A census counts the requests inside a handler, for each id of each level.
type census struct {
	t      *testing.T
	mu     sync.Mutex // protects inside
	inside map[string]int
	served atomic.Int32
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

// hijackAndClose takes the connection from net/http and closes it. HTTP/2 has
// no such thing.
func hijackAndClose(w http.ResponseWriter) {
	if conn, _, err := http.NewResponseController(w).Hijack(); err == nil {
		_ = conn.Close()
	}
}

// abuses are what handlers do to a request, by its number.
var abuses = []func(w http.ResponseWriter, r *http.Request){
	func(http.ResponseWriter, *http.Request) {},
	func(w http.ResponseWriter, _ *http.Request) { lengthy([]byte("done"))(w, nil) },
	func(http.ResponseWriter, *http.Request) { panic("a bug in a handler") },
	func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) },
	func(w http.ResponseWriter, _ *http.Request) {
		_, _ = io.WriteString(w, "part")
		flush(w)
		panic("a bug in the middle of a response")
	},
	func(w http.ResponseWriter, r *http.Request) {
		if r.ProtoMajor == 1 { // over HTTP/2 net/http leaves the stream open
			runtime.Goexit()
		}
	},
	func(w http.ResponseWriter, _ *http.Request) { hijackAndClose(w) },
	func(w http.ResponseWriter, _ *http.Request) {
		hijackAndClose(w)
		panic("a bug after the handler took the connection over")
	},
	func(w http.ResponseWriter, r *http.Request) {
		_, err := io.Copy(io.Discard, http.MaxBytesReader(w, r.Body, 10))
		if tooLarge := (*http.MaxBytesError)(nil); errors.As(err, &tooLarge) {
			w.WriteHeader(http.StatusRequestEntityTooLarge)
		}
	},
	func(w http.ResponseWriter, r *http.Request) {
		if r.ProtoMajor == 1 { // over HTTP/2 net/http may read the header of a 103 until later, if the client leaves
			w.WriteHeader(http.StatusEarlyHints)
		}
		w.Header().Set("Trailer", "Sum")
		_, _ = io.WriteString(w, "body")
		w.Header().Set("Sum", "1")
	},
	func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(w, r.Body)
		flush(w)
	},
	func(_ http.ResponseWriter, r *http.Request) { // the handler outlives the client, or http.TimeoutHandler
		timer := time.NewTimer(5 * time.Millisecond)
		defer timer.Stop()
		select {
		case <-r.Context().Done():
		case <-timer.C:
		}
		if rand.N(2) == 0 {
			panic("a bug after the end")
		}
	},
}

// Whatever handlers and clients do, no level admits more than its limit. In the
// end no place is held and no request waits. TestMain checks that no goroutine
// is left.
func TestLongHandlersUnderAbuse(t *testing.T) {
	t.Parallel()
	for _, driver := range pgtest.Drivers() {
		for _, p := range httptesting.Protocols {
			t.Run(driver+"/"+p.Name, func(t *testing.T) {
				t.Parallel()
				dsn := pgtest.Database(t)
				db, locks := dbtest.Open(t, driver, dsn), dbtest.Session(t, driver, dsn)
				abuse(t, locks, p, 500)
				lockertest.Eventually(t, "locks that no caller holds to go", func() bool { return dbtest.AdvisoryLocks(t, db) == 0 })
				if n := locks.Stats().Losses; n > 0 {
					t.Errorf("the Session lost its connection %d times", n)
				}
			})
		}
	}
}

// A short storm in memory needs no luck: what it checks holds at any time.
func TestHandlersUnderAbuse(t *testing.T) {
	t.Parallel()
	for _, p := range httptesting.Protocols {
		t.Run(p.Name, func(t *testing.T) {
			t.Parallel()
			abuse(t, sqllock.NewMemory(), p, 2*len(abuses))
		})
	}
}

// abuse has eight clients send that many requests each.
func abuse(t *testing.T, locks sqllock.Locker, p httptesting.Protocol, requests int) {
	c := &census{t: t, inside: map[string]int{}}
	levels := products(locks, ratelimit.WithWait(20*time.Millisecond, 4))
	h := httpmw.NewStack(levels).Handler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		c.served.Add(1)
		defer c.enter("user "+r.Header.Get(user), 1)()
		defer c.enter("tenant "+r.Header.Get(tenant), 2)()
		defer c.enter("total", 3)()
		n, _ := strconv.Atoi(r.Header.Get("N"))
		abuses[n%len(abuses)](w, r)
	}))
	mux := http.NewServeMux()
	mux.Handle("/", h)
	mux.Handle("/timeout", http.TimeoutHandler(h, 2*time.Millisecond, "timeout"))
	s := p.Serve(t, mux)
	var wg sync.WaitGroup
	for client := range 8 {
		wg.Go(func() {
			for n := range requests {
				sendAbuse(t, s, client, client*requests+n)
			}
		})
	}
	wg.Wait()
	if c.served.Load() == 0 {
		t.Error("no request was served")
	}
	for _, level := range levels {
		lockertest.Eventually(t, "no place of "+string(level.Limiter.Namespace())+" is left", func() bool {
			stats := level.Limiter.Stats()
			return stats.Active == 0 && stats.Queued == 0
		})
	}
	patient := httpmw.NewStack(products(locks, ratelimit.WithWait(httptesting.Patience, 1)))
	for who := range 4 {
		all, err := patient.AcquireAll(request("/", user+": "+strconv.Itoa(who), tenant+": "+strconv.Itoa(who%2)))
		if err != nil {
			t.Errorf("afterwards: %v", err)
		}
		_ = all.Unlock()
	}
}

// sendAbuse sends the nth request of a client, which may leave at any moment.
func sendAbuse(t *testing.T, s *httptest.Server, client, n int) {
	ctx, cancel := context.WithTimeout(t.Context(), httptesting.Patience)
	defer cancel()
	if n%3 == 0 {
		defer time.AfterFunc(rand.N(2*time.Millisecond), cancel).Stop()
	}
	method, path, body := http.MethodPost, "/", strings.Repeat("x", n%30)
	if n%5 == 0 {
		method, body = http.MethodHead, ""
	}
	if n%7 == 0 {
		path = "/timeout"
	}
	req, err := http.NewRequestWithContext(ctx, method, s.URL+path, strings.NewReader(body))
	if err != nil {
		t.Error(err)
		return
	}
	req.Header.Set(user, strconv.Itoa(client%4))
	req.Header.Set(tenant, strconv.Itoa(client%2))
	req.Header.Set("N", strconv.Itoa(n))
	_, _ = httptesting.Do(s, req) // the handler may break the connection, and the client leave
}
