package nemesis

import (
	"context"
	"errors"
	"io"
	"log"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/latchkey-go/latchkey/httpmw"
	"github.com/latchkey-go/latchkey/ratelimit"
)

// A website serves one request of an id at a time, by handlers that misbehave.
type website struct {
	server *httptest.Server
	busy   int      // the status of a refusal
	calls  sync.Map // *call by number
	number atomic.Int64
}

// A call is one request as its client and its handler see it.
type call struct {
	entered chan struct{}      // closed by the handler
	once    sync.Once          // protects the closing: net/http may send a request again
	hangUp  context.CancelFunc // ends the client's side
	leave   chan struct{}      // closed for the handler to end, if it waits for that
}

// timedOut is the path of handlers that have little time.
const timedOut = "/timed"

// openWebsite serves with locks of g, by HTTP/1 or HTTP/2.
func openWebsite(g *guest, rng *rand.Rand) *website {
	w := &website{busy: http.StatusTooManyRequests}
	var opts []httpmw.Option
	if rng.IntN(2) == 0 {
		w.busy = http.StatusConflict
		opts = append(opts, httpmw.WithConflict())
	}
	limiter := ratelimit.OneAtATime(g, requestKeys)
	locked := httpmw.New(limiter, httpmw.Query("id"), opts...).Handler(http.HandlerFunc(w.serve))
	mux := http.NewServeMux()
	mux.Handle("/", locked)
	mux.Handle(timedOut, http.TimeoutHandler(locked, 50*time.Millisecond, "out of time"))
	w.server = httptest.NewUnstartedServer(mux)
	w.server.Config.ErrorLog = log.New(io.Discard, "", 0) // panics are what we are here for
	if rng.IntN(2) == 0 {
		w.server.EnableHTTP2 = true
		w.server.StartTLS()
	} else {
		w.server.Start()
	}
	return w
}

func (w *website) close() { w.server.Close() }

// serve misbehaves as the request says.
func (w *website) serve(rw http.ResponseWriter, r *http.Request) {
	made, _ := w.calls.Load(r.FormValue("call"))
	c := made.(*call)
	how, err := strconv.Atoi(r.FormValue("how"))
	if err != nil {
		panic(err)
	}
	c.once.Do(func() { close(c.entered) })
	misdeeds[how].do(c, rw, r)
}

// ask makes a request for id whose handler does the misdeed with this number. It
// returns the status of the answer, 0 if there is none. begun is told of the call
// before it is made.
func (w *website) ask(ctx context.Context, id string, how int, begun func(*call)) (status int) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	c := &call{entered: make(chan struct{}), hangUp: cancel, leave: make(chan struct{})}
	number := strconv.FormatInt(w.number.Add(1), 10)
	w.calls.Store(number, c)
	begun(c)
	query := url.Values{"id": {id}, "how": {strconv.Itoa(how)}, "call": {number}}
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, w.server.URL+misdeeds[how].path+"?"+query.Encode(), nil)
	if err != nil {
		return 0
	}
	answer, err := w.server.Client().Do(r)
	if err != nil {
		return 0
	}
	defer answer.Body.Close()
	_, _ = io.Copy(io.Discard, answer.Body) // it may be cut short
	return answer.StatusCode
}

// refuses checks that a request is refused while another for the same id is
// served, and no longer.
func (w *website) refuses(ctx context.Context, other *guest, id string) error {
	calls := make(chan *call, 1)
	first := make(chan int, 1)
	go func() { first <- w.ask(ctx, id, waits, func(c *call) { calls <- c }) }()
	c := <-calls
	select {
	case <-c.entered:
	case status := <-first:
		return broken("a request for a free id was answered %d", status)
	}
	second := w.ask(ctx, id, answers, func(*call) {})
	err := held(ctx, other, requestKeys.Key(id))
	if goroutinesOf(servers...) == "" {
		err = errors.Join(err, errors.New("a server at work was not found"))
	}
	close(c.leave)
	if status := <-first; status != http.StatusOK {
		err = errors.Join(err, broken("a request that nobody disturbed was answered %d", status))
	}
	if second != w.busy {
		err = errors.Join(err, broken("a request for an id that was being served was answered %d, want %d", second, w.busy))
	}
	if third := w.ask(ctx, id, answers, func(*call) {}); third != http.StatusOK {
		err = errors.Join(err, broken("a request after the others was answered %d", third))
	}
	return err
}

// storm has clients make requests of every kind for some of ids, each again
// until it was not refused.
func (w *website) storm(ctx context.Context, rng *rand.Rand, ids []string) error {
	const clients, rounds = 8, 3
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	var all sync.WaitGroup
	for range clients {
		own := rand.New(rand.NewPCG(rng.Uint64(), rng.Uint64()))
		all.Go(func() {
			for range rounds {
				for _, how := range own.Perm(len(misdeeds)) {
					w.insist(ctx, own, ids, how)
				}
			}
		})
	}
	all.Wait()
	return context.Cause(ctx)
}

// insist asks until a handler has misbehaved.
func (w *website) insist(ctx context.Context, rng *rand.Rand, ids []string, how int) {
	if misdeeds[how].http1 && w.server.EnableHTTP2 {
		return
	}
	for ctx.Err() == nil {
		var c *call
		w.ask(ctx, ids[rng.IntN(len(ids))], how, func(made *call) {
			c = made
			close(c.leave)
		})
		select {
		case <-c.entered:
			return
		default:
		}
	}
}
