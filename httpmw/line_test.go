package httpmw_test

import (
	"context"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/latchkey-go/latchkey/httpmw"
	"github.com/latchkey-go/latchkey/internal/httptesting"
	"github.com/latchkey-go/latchkey/ratelimit"
	"github.com/latchkey-go/latchkey/sqllock"
)

// A line is a server in which requests wait for one that is inside.
type line struct {
	*httptest.Server
	entered chan string   // the URL's path of each request that enters the handler
	leave   chan struct{} // closed: the first request leaves
	refused chan error    // each rejection
	locks   *watchedLocks
	limiter *ratelimit.Limiter
}

// watchedLocks reports each call that waits.
type watchedLocks struct {
	*sqllock.Memory
	waits chan struct{}
}

func (l *watchedLocks) Lock(ctx context.Context, key sqllock.Key) (*sqllock.Lock, error) {
	l.waits <- struct{}{}
	return l.Memory.Lock(ctx, key)
}

// bare puts nothing around h.
func bare(h http.Handler) http.Handler { return h }

// newLine returns a line with a first request inside, and other middleware
// around. next serves the others.
func newLine(t *testing.T, around func(http.Handler) http.Handler, next http.HandlerFunc) *line {
	t.Helper()
	l := &line{
		entered: make(chan string, 100), leave: make(chan struct{}), refused: make(chan error, 100),
		locks: &watchedLocks{sqllock.NewMemory(), make(chan struct{}, 100)},
	}
	l.limiter = ratelimit.OneAtATime(l.locks, "export", ratelimit.WithWait(time.Hour, 100),
		ratelimit.WithObserver(func(_ context.Context, e ratelimit.Event) {
			if e.Err != nil && e.Result != ratelimit.Lost {
				l.refused <- e.Err
			}
		}))
	m := httpmw.New(l.limiter, httpmw.Header(user))
	l.Server = httptest.NewUnstartedServer(around(m.Handler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		l.entered <- r.URL.Path
		if r.URL.Path == "/first" {
			httptesting.Stay(t.Context(), l.leave)
			return
		}
		next(w, r)
	}))))
	l.Config.ErrorLog = log.New(io.Discard, "", 0)
	l.Start()
	t.Cleanup(l.Close)
	conn := dial(t, l.Server, "GET /first HTTP/1.1\r\nHost: x\r\n"+user+": ada\r\n\r\n")
	t.Cleanup(func() { _ = conn.Close() })
	httptesting.Receive(t, l.entered, "first request")
	return l
}

// wait sends request, and returns when it waits for a lock.
func (l *line) wait(t *testing.T, request string) net.Conn {
	t.Helper()
	conn := dial(t, l.Server, request)
	httptesting.Receive(t, l.locks.waits, "wait")
	return conn
}
