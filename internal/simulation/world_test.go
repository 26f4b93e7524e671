package simulation

import (
	"context"
	"database/sql"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/latchkey-go/latchkey/internal/dialect"
	"github.com/latchkey-go/latchkey/sqllock"
)

var background = context.Background()

const (
	lease = 2 * time.Second // the shortest that Open accepts

	// validFor is how long a client relies on its locks after it sent the last
	// statement that was answered. It is the lease less 0.1 % for the drift of
	// clocks, less a fifth.
	validFor = lease - lease/1000 - lease/5

	responseBound = 900 * time.Millisecond             // a call waits for the server at most so long
	backoffMost   = time.Second                        // the longest pause between attempts to connect
	closeBound    = time.Second + 100*time.Millisecond // of Close

	// tick is the time between two checks, if the server ends no session before.
	tick = 100 * time.Millisecond

	// recovery is how long after the last fault every client is served again.
	// By then the server has freed what it must, and a pause between attempts
	// to connect has passed.
	recovery = lease + lease/4 + backoffMost + responseBound

	// goodTime is longer than any call takes while there are no faults.
	goodTime = time.Second
)

// start is the time at which every synctest bubble begins.
var start = time.Date(2000, 1, 1, 0, 0, 0, 0, time.UTC)

// now returns the time of the bubble, which all clients share. It is never 0.
func now() time.Duration { return time.Since(start) + 1 }

// A world is one run of a plan: the clients, their server, and the rules that
// were broken.
//
// Invariant: whoever holds world.mu calls no other part of the simulation.
type world struct {
	plan     plan
	harmless bool // no fault of the plan may cost a lock
	server   *server
	clients  []*client
	ctx      context.Context // of the callers; its end asks them to come to an end
	stop     context.CancelFunc

	mu      sync.Mutex             // protects what follows
	live    map[*holder]bool       // whose Unlock has not begun
	calling int                    // goroutines that spawn started
	wrongs  []string               // the rules that were broken
	takes   int                    // grants of the server
	taken   map[serverGrant]int    // the number of the last such grant
	last    map[clientKey]*session // which took the key last, of the client's
	granted int                    // locks that callers got
	tokens  tokenLog
	book    book
	calls   map[*sqllock.Session]uint64 // for locks
	figures map[string]int              // for the log of the test
}

// run carries out the plan in virtual time. It returns the rules that were
// broken.
func (p plan) run(t *testing.T, harmless bool, figures map[string]int) []string {
	return p.live(t, harmless, figures, func(w *world) {
		for _, step := range p.Steps {
			w.advance(step.After)
			if w.failed() {
				return
			}
			step.Do.happen(w)
		}
	})
}

// live makes the world of p in virtual time and brings it to its end after f. It
// returns the rules that were broken.
func (p plan) live(t *testing.T, harmless bool, figures map[string]int, f func(*world)) []string {
	w := newWorld()
	w.plan, w.harmless, w.figures = p, harmless, figures
	func() {
		defer func() {
			if stuck := recover(); stuck != nil {
				w.wrong("goroutines are left", fmt.Sprint(stuck))
			}
		}()
		synctest.Test(t, func(*testing.T) {
			w.begin()
			defer w.stop()
			f(w)
			w.end()
		})
	}()
	return w.wrongs
}

func newWorld() *world {
	return &world{
		figures: make(map[string]int),
		live:    make(map[*holder]bool), tokens: make(tokenLog), taken: make(map[serverGrant]int), last: make(map[clientKey]*session),
		book: newBook(), calls: make(map[*sqllock.Session]uint64),
	}
}

// newServer returns the server of w.
func (w *world) newServer(traits dialect.Traits) *server {
	return &server{
		traits: traits, began: now(), world: w,
		holders: make(map[dialect.Key]map[*session]bool), freed: make(map[dialect.Key]time.Duration), sessions: make(map[*session]bool),
	}
}

// begin starts the server and opens a Session for each client.
func (w *world) begin() {
	w.ctx, w.stop = context.WithCancel(background)
	w.server = w.newServer(traitsOf(w.plan.PerConn))
	w.server.drift, w.server.latency = w.plan.Drift, w.plan.Latency
	for range w.plan.Clients {
		link := new(link)
		c := &client{link: link, db: sql.OpenDB(clientDriver{w.server, link})}
		w.clients = append(w.clients, c)
		w.open(c)
	}
}

// client returns the nth client, modulo their number.
func (w *world) client(n int) *client { return w.clients[n%len(w.clients)] }

// retire takes the Session from c, so that it can be closed. It returns nil if
// there is none.
func (w *world) retire(c *client) *sqllock.Session {
	w.mu.Lock()
	s := c.session
	c.session = nil
	w.mu.Unlock()
	if s != nil {
		w.countLosses(int(s.Stats().Losses))
	}
	return s
}

// countLosses notes that a Session has lost n connections.
func (w *world) countLosses(n int) {
	if n > 0 && w.harmless {
		w.wrong("a loss without a fault", "")
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.figures["connections lost"] += n
}

// spawn runs f in a goroutine. The end of the run waits for it.
func (w *world) spawn(f func()) {
	w.mu.Lock()
	w.calling++
	w.mu.Unlock()
	go func() {
		f()
		w.mu.Lock()
		defer w.mu.Unlock()
		w.calling--
	}()
}

// idle reports whether all goroutines of spawn have ended.
func (w *world) idle() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.calling == 0
}

// rest waits for d, or for the end of the callers' context.
func (w *world) rest(d time.Duration) {
	select {
	case <-time.After(d):
	case <-w.ctx.Done():
	}
}

// advance lets d pass. It checks the rules at each tick, and whenever the server
// ends a session.
func (w *world) advance(d time.Duration) {
	for end := now() + d; ; {
		synctest.Wait()
		w.check()
		left := end - now()
		if left <= 0 {
			return
		}
		time.Sleep(min(left, tick, w.server.untilDue()))
	}
}

// wrong notes that a rule is broken. The name of a rule is always the same, so
// that rapid makes the plan smaller for that rule.
func (w *world) wrong(rule, detail string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(w.wrongs) < 5 {
		w.wrongs = append(w.wrongs, fmt.Sprintf("%s (after %v: %s)", rule, now(), detail))
	}
}

// failed reports whether a rule is broken.
func (w *world) failed() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return len(w.wrongs) > 0
}

// count counts an event for the log of the test.
func (w *world) count(what string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.figures[what]++
}

// countCall counts a call for locks of s.
func (w *world) countCall(s *sqllock.Session) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.calls[s]++
}

// sessions returns the Sessions that are open.
func (w *world) sessions() []*sqllock.Session {
	w.mu.Lock()
	defer w.mu.Unlock()
	var open []*sqllock.Session
	for _, c := range w.clients {
		if c.session != nil {
			open = append(open, c.session)
		}
	}
	return open
}

// held returns the holders whose Unlock has not begun.
func (w *world) held() []*holder {
	w.mu.Lock()
	defer w.mu.Unlock()
	held := make([]*holder, 0, len(w.live))
	for h := range w.live {
		held = append(held, h)
	}
	return held
}
