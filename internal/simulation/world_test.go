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
	lease = 2 * time.Second // the shortest that Open takes

	// validFor is how long after a statement was sent its locks are valid: the
	// lease, less 0.1 % for the drift of clocks, less a fifth.
	validFor = lease - lease/1000 - lease/5

	responseBound = 900 * time.Millisecond // a call waits for the server no longer
	backoffMost   = time.Second            // the longest pause between attempts to connect

	tick = 100 * time.Millisecond // how often all is checked, beside the moments when the server ends a session

	closeBound = time.Second + 100*time.Millisecond

	// recovery is how long after the last fault everybody is served again: the
	// server has freed what it must, and a pause between attempts to connect
	// has passed.
	recovery = lease + lease/4 + backoffMost + responseBound

	// goodTime is more than a call takes while there are no faults.
	goodTime = time.Second
)

// contendedKeys are the keys for which the callers contend.
var contendedKeys = []sqllock.Key{sqllock.ID(1), sqllock.ID(2), secrets[0].Key("three"), sqllock.Pair(1, 1)}

// secrets make different keys of one name.
var (
	secrets = [2]sqllock.KeyedNamespace{namespace.Keyed([]byte(secretTexts[0])), namespace.Keyed([]byte(secretTexts[1]))}

	secretTexts = [2]string{"secret", "other"}
)

const namespace = sqllock.Namespace("simulation")

// key is the nth key, as a client makes it.
func (w *world) key(client, n int) sqllock.Key {
	if n == 2 && w.plan.TwoSecrets && client%len(w.clients) == len(w.clients)-1 {
		return secrets[1].Key("three")
	}
	return contendedKeys[n]
}

// A world is one run: some processes, their server, and what is wrong.
type world struct {
	plan     plan
	harmless bool
	server   *server
	clients  []*client
	ctx      context.Context // of the callers; ends when they should come to an end
	stop     context.CancelFunc

	mu      sync.Mutex // protects what follows; nothing is called with it held
	live    map[*holder]bool
	calling int // goroutines of callers
	wrongs  []string
	tokens  tokenLog
	takes   int // by the server, in all
	taken   map[serverGrant]int
	last    map[clientKey]*session
	book    book
	granted int
	figures map[string]int
}

// run carries out the plan in virtual time, and returns what was wrong.
func (p plan) run(t *testing.T, harmless bool, figures map[string]int) []string {
	w := &world{
		plan: p, harmless: harmless, figures: figures,
		live: make(map[*holder]bool), tokens: make(tokenLog), taken: make(map[serverGrant]int), last: make(map[clientKey]*session), book: newBook(),
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

func (w *world) run() {
	w.ctx, w.stop = context.WithCancel(background)
	defer w.stop()
	w.server = &server{
		drift: w.plan.Drift, latency: w.plan.Latency, perSession: w.plan.PerConn, began: now(), world: w,
		owners: make(map[dialect.Key]*session), freed: make(map[dialect.Key]time.Duration), sessions: make(map[*session]bool),
	}
	for range w.plan.Clients {
		link := new(link)
		c := &client{link: link, db: sql.OpenDB(clientDriver{w.server, link})}
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
func (w *world) client(n int) *client { return w.clients[n%len(w.clients)] }

// retire takes c's Session, for its end.
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

func (w *world) countLosses(n int) {
	if n > 0 && w.harmless {
		w.wrong("a loss without a fault", "")
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.figures["connections lost"] += n
}

// spawn runs f in a goroutine that the end waits for.
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

func (w *world) idle() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.calling == 0
}

// rest pauses a caller, until the end at the latest.
func (w *world) rest(d time.Duration) {
	select {
	case <-time.After(d):
	case <-w.ctx.Done():
	}
}

// advance lets d pass, and checks again and again.
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

// wrong notes a broken rule. Its name is the same each time, for rapid to know
// what it makes smaller.
func (w *world) wrong(rule, detail string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(w.wrongs) < 5 {
		w.wrongs = append(w.wrongs, fmt.Sprintf("%s (after %v: %s)", rule, now(), detail))
	}
}

func (w *world) failed() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return len(w.wrongs) > 0
}

func (w *world) count(what string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.figures[what]++
}

// sessions is the Sessions that are open.
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

// held is the locks that callers have, and have not begun to give back.
func (w *world) held() []*holder {
	w.mu.Lock()
	defer w.mu.Unlock()
	held := make([]*holder, 0, len(w.live))
	for h := range w.live {
		held = append(held, h)
	}
	return held
}
