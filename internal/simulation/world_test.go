package simulation

import (
	"context"
	"database/sql"
	"fmt"
	"log/slog"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/latchkey-go/latchkey/internal/dialect"
	"github.com/latchkey-go/latchkey/sqllock"
)

var background = context.Background()

const (
	simLease = 2 * time.Second // the shortest that Open takes

	// simValid is how long after a statement was sent its locks are valid: the
	// lease, less 0.1 % for the drift of clocks, less a fifth.
	simValid = simLease - simLease/1000 - simLease/5

	answerBound   = 900 * time.Millisecond // a call waits for the server no longer
	reconnectMost = time.Second            // the longest pause between attempts to connect

	simTick = 100 * time.Millisecond // how often all is checked, beside the moments when the server ends a session

	closeBound = time.Second + 100*time.Millisecond

	// recovery is how long after the last fault everybody is served again: the
	// server has freed what it must, and a pause between attempts to connect
	// has passed.
	recovery = simLease + simLease/4 + reconnectMost + answerBound

	// goodTime is more than a call takes while there are no faults.
	goodTime = time.Second
)

// simKeys are the keys for which the callers contend.
var simKeys = []sqllock.Key{sqllock.ID(1), sqllock.ID(2), simSecrets[0].Key("three"), sqllock.Pair(1, 1)}

// simSecrets make different keys of one name.
var (
	simSecrets = [2]sqllock.KeyedNamespace{simNamespace.Keyed([]byte(simSecretTexts[0])), simNamespace.Keyed([]byte(simSecretTexts[1]))}

	simSecretTexts = [2]string{"secret", "other"}
)

const simNamespace = sqllock.Namespace("simulation")

// key is the nth key, as a client makes it.
func (w *simWorld) key(client, n int) sqllock.Key {
	if n == 2 && w.plan.TwoSecrets && client%len(w.clients) == len(w.clients)-1 {
		return simSecrets[1].Key("three")
	}
	return simKeys[n]
}

// A simWorld is one run: some processes, their server, and what is wrong.
type simWorld struct {
	plan     simPlan
	harmless bool
	server   *simServer
	clients  []*simClient
	ctx      context.Context // of the callers; ends when they should come to an end
	stop     context.CancelFunc

	mu      sync.Mutex // protects what follows; nothing is called with it held
	live    map[*simHeld]bool
	calling int // goroutines of callers
	wrongs  []string
	tokens  simTokens
	takes   int // by the server, in all
	taken   map[simTake]int
	last    map[simLast]*simSession
	book    simBook
	granted int
	figures map[string]int
}

// A simClient is a process.
type simClient struct {
	link    *simLink
	db      *sql.DB
	session *sqllock.Session // nil while closed; protected by the world's mu
}

// run carries out the plan in virtual time, and returns what was wrong.
func (p simPlan) run(t *testing.T, harmless bool, figures map[string]int) []string {
	w := &simWorld{
		plan: p, harmless: harmless, figures: figures,
		live: make(map[*simHeld]bool), tokens: make(simTokens), taken: make(map[simTake]int), last: make(map[simLast]*simSession), book: newSimBook(),
	}
	func() {
		defer func() {
			if stuck := recover(); stuck != nil {
				w.wrong("goroutines are left", fmt.Sprint(stuck))
			}
		}()
		synctest.Test(t, func(*testing.T) { w.run() })
	}()
	return w.wrongs
}

func (w *simWorld) run() {
	w.ctx, w.stop = context.WithCancel(background)
	defer w.stop()
	w.server = &simServer{
		drift: w.plan.Drift, latency: w.plan.Latency, perSession: w.plan.PerConn, began: simNow(), world: w,
		owners: make(map[dialect.Key]*simSession), freed: make(map[dialect.Key]time.Duration), sessions: make(map[*simSession]bool),
	}
	for range w.plan.Clients {
		link := new(simLink)
		c := &simClient{link: link, db: sql.OpenDB(simDriver{w.server, link})}
		w.clients = append(w.clients, c)
		w.open(c)
	}
	for _, step := range w.plan.Steps {
		w.advance(step.After)
		if w.failed() {
			break
		}
		step.Do.happen(w)
	}
	w.end()
}

// client is the nth, of as many as there are.
func (w *simWorld) client(n int) *simClient { return w.clients[n%len(w.clients)] }

// open gives c a Session, and reports whether it could.
func (w *simWorld) open(c *simClient) bool {
	opts := []sqllock.Option{sqllock.WithLease(simLease), sqllock.WithMaxConns(3), sqllock.WithLogger(slog.New(slog.DiscardHandler))}
	if w.plan.Async {
		opts = append(opts, sqllock.WithAsyncUnlock())
	}
	s, err := sqllock.Open(background, c.db, opts...)
	if err != nil {
		return false
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	c.session = s
	return true
}

// retire takes c's Session, for its end.
func (w *simWorld) retire(c *simClient) *sqllock.Session {
	w.mu.Lock()
	s := c.session
	c.session = nil
	w.mu.Unlock()
	if s != nil {
		w.countLosses(int(s.Stats().Losses))
	}
	return s
}

func (w *simWorld) countLosses(n int) {
	if n > 0 && w.harmless {
		w.wrong("a loss without a fault", "")
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.figures["connections lost"] += n
}

// spawn runs f in a goroutine that the end waits for.
func (w *simWorld) spawn(f func()) {
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

func (w *simWorld) idle() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.calling == 0
}

// rest pauses a caller, until the end at the latest.
func (w *simWorld) rest(d time.Duration) {
	select {
	case <-time.After(d):
	case <-w.ctx.Done():
	}
}

// advance lets d pass, and checks again and again.
func (w *simWorld) advance(d time.Duration) {
	for end := simNow() + d; ; {
		synctest.Wait()
		w.check()
		left := end - simNow()
		if left <= 0 {
			return
		}
		time.Sleep(min(left, simTick, w.server.untilDue()))
	}
}

// wrong notes a broken rule. Its name is the same each time, for rapid to know
// what it makes smaller.
func (w *simWorld) wrong(rule, detail string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(w.wrongs) < 5 {
		w.wrongs = append(w.wrongs, fmt.Sprintf("%s (after %v: %s)", rule, simNow(), detail))
	}
}

func (w *simWorld) failed() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return len(w.wrongs) > 0
}

func (w *simWorld) count(what string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.figures[what]++
}

// sessions is the Sessions that are open.
func (w *simWorld) sessions() []*sqllock.Session {
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

// held is the locks that callers have, and have not begun to give back.
func (w *simWorld) held() []*simHeld {
	w.mu.Lock()
	defer w.mu.Unlock()
	held := make([]*simHeld, 0, len(w.live))
	for h := range w.live {
		held = append(held, h)
	}
	return held
}
