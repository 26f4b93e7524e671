package httpmw_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strconv"
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

// No request leaves a lock behind, however its handler ends. TestMain checks
// that none leaves a goroutine behind.
func TestHandlerFaults(t *testing.T) {
	t.Parallel()
	for i, driver := range pgtest.Drivers() {
		for _, p := range httptesting.Protocols {
			conflict := (i+p.Major)%2 == 0
			for _, levels := range []int{1, 3} {
				t.Run(fmt.Sprintf("%s/%s/conflict=%t/levels=%d", driver, p.Name, conflict, levels), func(t *testing.T) {
					t.Parallel()
					testHandlerFaults(t, driver, p, conflict, levels)
				})
			}
		}
	}
}

func testHandlerFaults(t *testing.T, driver string, p httptesting.Protocol, conflict bool, levels int) {
	db := dbtest.Open(t, driver, pgtest.Database(t))
	serving, other := httptesting.Session(t, db), httptesting.Session(t, db)
	w := newFaultyServer(t, p, serving, conflict, levels)
	ids := make([]string, 16)
	for i := range ids {
		ids[i] = "user " + strconv.Itoa(i)
	}
	w.oneAtATime(t, other, ids[0])
	w.storm(t, ids)
	for _, id := range ids {
		becomesFree(t, other, faultKeys.Key(id))
	}
	// Both Sessions are still open, so what they had left would be here.
	lockertest.Eventually(t, "locks that no caller holds to go", func() bool { return advisoryLocks(t, db) == 0 })
	if n := serving.Stats().Losses; n > 0 {
		t.Errorf("the Session lost its connection %d times", n)
	}
}

// becomesFree fails the test unless s can take key within a while.
func becomesFree(t *testing.T, s *sqllock.Session, key sqllock.Key) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), httptesting.Patience)
	defer cancel()
	lock, err := s.Lock(ctx, key)
	if err != nil {
		t.Fatalf("after all requests a key is not free: %v", err)
	}
	if err := lock.Unlock(); err != nil {
		t.Error(err)
	}
}

func advisoryLocks(t *testing.T, db *sql.DB) (n int) {
	t.Helper()
	err := db.QueryRowContext(t.Context(), `SELECT count(*) FROM pg_locks WHERE locktype = 'advisory'
		AND database = (SELECT oid FROM pg_database WHERE datname = current_database())`).Scan(&n)
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// faultKeys is the namespace of the limiter under test.
const faultKeys = sqllock.Namespace("handler faults")

// A faultyServer serves one request of an id at a time. Its handlers misbehave
// as the request says.
type faultyServer struct {
	*httptest.Server
	p      httptesting.Protocol
	busy   int      // the status of a rejected request
	calls  sync.Map // *handlerCall by number
	number atomic.Int64
}

// A handlerCall is one request as its client and its handler see it.
type handlerCall struct {
	entered chan struct{}      // closed by the handler
	once    sync.Once          // protects the closing: net/http may send a request again
	hangUp  context.CancelFunc // ends the client's side
	leave   chan struct{}      // closed to let a handler end that waits
}

func newFaultyServer(t *testing.T, p httptesting.Protocol, locks sqllock.Locker, conflict bool, levels int) *faultyServer {
	w := &faultyServer{p: p, busy: http.StatusTooManyRequests}
	var opts []httpmw.Option
	if conflict {
		w.busy = http.StatusConflict
		opts = append(opts, httpmw.WithConflict())
	}
	id := httpmw.Query("id")
	stack := []httpmw.Level{
		{Limiter: ratelimit.OneAtATime(locks, faultKeys), Key: id},
		{Limiter: ratelimit.AtMost(2, locks, "devices"), Key: id},
		{Limiter: ratelimit.OneAtATime(locks, "sessions"), Key: id},
	}
	limited := httpmw.NewStack(stack[:levels], opts...).Handler(http.HandlerFunc(w.handle))
	mux := http.NewServeMux()
	mux.Handle("/", limited)
	mux.Handle(timeoutPath, http.TimeoutHandler(limited, 50*time.Millisecond, "timeout"))
	w.Server = p.Serve(t, mux)
	return w
}

func (w *faultyServer) handle(rw http.ResponseWriter, r *http.Request) {
	stored, _ := w.calls.Load(r.FormValue("call"))
	c := stored.(*handlerCall)
	which, err := strconv.Atoi(r.FormValue("which"))
	if err != nil {
		panic(err)
	}
	c.once.Do(func() { close(c.entered) })
	misbehaviors[which].do(c, rw, r)
}

// newCall registers a call. The returned context is its client's.
func (w *faultyServer) newCall(ctx context.Context) (context.Context, *handlerCall, string) {
	ctx, cancel := context.WithCancel(ctx)
	c := &handlerCall{entered: make(chan struct{}), hangUp: cancel, leave: make(chan struct{})}
	number := strconv.FormatInt(w.number.Add(1), 10)
	w.calls.Store(number, c)
	return ctx, c, number
}

// send sends the request of c for id, whose handler misbehaves in the given
// way. It returns the status of the response, 0 if there is none.
func (w *faultyServer) send(ctx context.Context, c *handlerCall, number, id string, which int) (status int) {
	defer c.hangUp()
	query := url.Values{"id": {id}, "which": {strconv.Itoa(which)}, "call": {number}}
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, w.URL+misbehaviors[which].path+"?"+query.Encode(), nil)
	if err != nil {
		return 0
	}
	resp, err := w.Client().Do(r)
	if err != nil {
		return 0
	}
	defer resp.Body.Close()
	_, _ = io.Copy(io.Discard, resp.Body) // it may be cut short
	return resp.StatusCode
}

// status is send for a call of which nothing else is needed.
func (w *faultyServer) status(ctx context.Context, id string, which int) int {
	ctx, c, number := w.newCall(ctx)
	close(c.leave)
	return w.send(ctx, c, number, id, which)
}

// oneAtATime checks that a request is rejected while another one for its id is
// in its handler, and is served before and after it.
func (w *faultyServer) oneAtATime(t *testing.T, other *sqllock.Session, id string) {
	t.Helper()
	bounded, cancel := context.WithTimeout(t.Context(), httptesting.Patience)
	defer cancel()
	ctx, first, number := w.newCall(bounded)
	firstStatus := make(chan int, 1)
	go func() { firstStatus <- w.send(ctx, first, number, id, waits) }()
	select {
	case <-first.entered:
	case status := <-firstStatus:
		t.Fatalf("a request for a free id has status %d", status)
	}
	second := w.status(bounded, id, responds)
	if lock, err := other.TryLock(t.Context(), faultKeys.Key(id)); !errors.Is(err, sqllock.ErrHeld) {
		t.Errorf("another Session's TryLock of a key in use: %v, %v, want ErrHeld", lock, err)
	}
	close(first.leave)
	if status := <-firstStatus; status != http.StatusOK {
		t.Errorf("an undisturbed request has status %d", status)
	}
	if second != w.busy {
		t.Errorf("a request for an id in use has status %d, want %d", second, w.busy)
	}
	if third := w.status(bounded, id, responds); third != http.StatusOK {
		t.Errorf("a request after the others has status %d", third)
	}
}

// storm has clients send requests with every misbehavior for some of ids.
func (w *faultyServer) storm(t *testing.T, ids []string) {
	const clients, rounds = 8, 3
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	var all sync.WaitGroup
	for range clients {
		all.Go(func() {
			for range rounds {
				for _, which := range rand.Perm(len(misbehaviors)) {
					w.sendUntilServed(ctx, ids, which)
				}
			}
		})
	}
	all.Wait()
	if err := context.Cause(ctx); err != nil {
		t.Fatalf("requests were not served, or kept their locks: %v", err)
	}
}

// sendUntilServed sends requests until a handler has misbehaved.
func (w *faultyServer) sendUntilServed(ctx context.Context, ids []string, which int) {
	if misbehaviors[which].http1 && w.p.Major != 1 {
		return
	}
	for ctx.Err() == nil {
		callCtx, c, number := w.newCall(ctx)
		close(c.leave)
		w.send(callCtx, c, number, ids[rand.IntN(len(ids))], which)
		select {
		case <-c.entered:
			return
		default:
		}
	}
}
