package httpmw_test

import (
	"context"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/latchkey-go/latchkey/internal/httptesting"
	"github.com/latchkey-go/latchkey/internal/lockertest"
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
	conns   *watchedListener
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

func (l *watchedLocks) LockAny(ctx context.Context, keys ...sqllock.Key) (*sqllock.Lock, error) {
	l.waits <- struct{}{}
	return l.Memory.LockAny(ctx, keys...)
}

// A watchedListener has the server's connections, by the address of the client.
type watchedListener struct {
	net.Listener
	conns sync.Map // *watchedConn by string
}

func (l *watchedListener) Accept() (net.Conn, error) {
	c, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	w := &watchedConn{Conn: c}
	l.conns.Store(c.RemoteAddr().String(), w)
	return w, nil
}

// consumed reports whether the server began to read from the connection of
// client after it had received n bytes.
func (l *watchedListener) consumed(client net.Conn, n int) bool {
	c, ok := l.conns.Load(client.LocalAddr().String())
	return ok && c.(*watchedConn).before.Load() >= int64(n)
}

// A watchedConn is the server's side of a connection.
type watchedConn struct {
	net.Conn
	received atomic.Int64 // bytes
	before   atomic.Int64 // received at the start of the last Read
}

func (c *watchedConn) Read(p []byte) (int, error) {
	c.before.Store(c.received.Load())
	n, err := c.Conn.Read(p)
	c.received.Add(int64(n))
	return n, err
}

// bare puts nothing around h.
func bare(h http.Handler) http.Handler { return h }

// newLine returns a line with a first request inside. next serves the others.
func newLine(t *testing.T, next http.HandlerFunc, opts ...ratelimit.Option) *line {
	t.Helper()
	return newLineOf(t, stacks["one limit"], bare, next, opts...)
}

// newLineOf is newLine for a stack, with other middleware around.
func newLineOf(t *testing.T, levels stack, around func(http.Handler) http.Handler, next http.HandlerFunc, opts ...ratelimit.Option) *line {
	t.Helper()
	l := &line{
		entered: make(chan string, 100), leave: make(chan struct{}), refused: make(chan error, 100),
		locks: &watchedLocks{sqllock.NewMemory(), make(chan struct{}, 100)},
	}
	opts = append([]ratelimit.Option{
		ratelimit.WithWait(time.Hour, 100),
		ratelimit.WithObserver(func(_ context.Context, e ratelimit.Event) {
			if e.Err != nil && e.Result != ratelimit.Lost {
				l.refused <- e.Err
			}
		}),
	}, opts...)
	m := levels.over(l.locks, opts...)
	l.Server = httptest.NewUnstartedServer(around(m.Handler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		l.entered <- r.URL.Path
		if r.URL.Path == "/first" {
			httptesting.Stay(t.Context(), l.leave)
			return
		}
		next(w, r)
	}))))
	l.Config.ErrorLog = log.New(io.Discard, "", 0)
	l.conns = &watchedListener{Listener: l.Listener}
	l.Listener = l.conns
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

// consumed sends request, and returns when the server has read all of it and
// reads on. Before that it would not notice that the client leaves.
func (l *line) consumed(t *testing.T, request string) net.Conn {
	t.Helper()
	conn := dial(t, l.Server, request)
	lockertest.Eventually(t, "the server reads what comes after the request", func() bool {
		return l.conns.consumed(conn, len(request))
	})
	return conn
}
