package simulation

import (
	"cmp"
	"context"
	"database/sql"
	"errors"
	"log/slog"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/latchkey-go/latchkey/internal/dialect"
	"github.com/latchkey-go/latchkey/sqllock"
)

// A script is a test that makes each call and each fault itself. The network has
// no latency. A hook of a connection holds a statement back, or makes it fail, at
// an exact point.
type script struct {
	perConn   int  // locks on a connection before another is opened; 0: the default
	room      int  // keys that a statement carries; 0: any number
	noReaders bool // the database has no shared locks
	secrets   bool // it checks secrets

	session func(*stage, *conn) dialect.Session // makes a session of c that can do more; nil: c is it
	opts    []sqllock.Option
}

// A stage is a running script, with its server.
type stage struct {
	*server
	script script
	link   *link
	db     *sql.DB

	stageMu sync.Mutex // protects what follows
	begun   int        // attempts to connect
	conns   []*conn    // all that were ever opened
	refuse  func(n int) error
}

// run runs test in virtual time with a Session on a server.
func (sc script) run(t *testing.T, test func(t *testing.T, s *sqllock.Session, st *stage)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld()
		traits := traitsOf(cmp.Or(sc.perConn, dialect.HeldPerConnection))
		traits.Readers, traits.ChecksSecrets = !sc.noReaders, sc.secrets
		st := &stage{server: w.newServer(traits), script: sc, link: new(link)}
		st.server.stage, w.server = st, st.server
		st.db = sql.OpenDB(clientDriver{st.server, st.link})
		t.Cleanup(func() { // after hooks have let go of their statements
			time.Sleep(time.Minute)
			_ = st.db.Close()
			if n := st.unclosed(); n != 0 {
				t.Errorf("%d connections are left", n)
			}
			for _, wrong := range w.wrongs {
				t.Error(wrong)
			}
		})
		test(t, st.another(t, sc.opts...), st)
	})
}

// scripted is script.run of a script without settings.
func scripted(t *testing.T, test func(t *testing.T, s *sqllock.Session, st *stage), opts ...sqllock.Option) {
	t.Helper()
	script{opts: opts}.run(t, test)
}

// another opens a Session, which is closed at the end.
func (st *stage) another(t *testing.T, opts ...sqllock.Option) *sqllock.Session {
	t.Helper()
	s, err := sqllock.Open(t.Context(), st.db, append([]sqllock.Option{withoutLog()}, opts...)...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() })
	return s
}

// withoutLog makes a Session log nothing.
func withoutLog() sqllock.Option { return sqllock.WithLogger(slog.New(slog.DiscardHandler)) }

// open opens a connection with session s.
func (st *stage) open(s *session) (dialect.Session, error) {
	st.stageMu.Lock()
	st.begun++
	n, hook := st.begun, st.refuse
	st.stageMu.Unlock()
	if hook != nil {
		if err := hook(n); err != nil {
			return nil, err
		}
	}
	st.mu.Lock()
	st.addLocked(s)
	st.mu.Unlock()
	c := &conn{session: s, stage: st}
	st.stageMu.Lock()
	st.conns = append(st.conns, c)
	c.number = len(st.conns)
	st.stageMu.Unlock()
	if st.script.session != nil {
		return st.script.session(st, c), nil
	}
	return c, nil
}

// onOpen sets what is called before a connection opens.
func (st *stage) onOpen(hook func(n int) error) {
	st.stageMu.Lock()
	defer st.stageMu.Unlock()
	st.refuse = hook
}

// attempts returns how many attempts to connect there were.
func (st *stage) attempts() int {
	st.stageMu.Lock()
	defer st.stageMu.Unlock()
	return st.begun
}

// conn returns the nth connection that was opened, from 0.
func (st *stage) conn(n int) *conn {
	st.stageMu.Lock()
	defer st.stageMu.Unlock()
	return st.conns[n]
}

// unclosed returns how many connections the client has not closed.
func (st *stage) unclosed() int {
	_, _, unclosed := st.leftover()
	return unclosed
}

// held returns how many locks the server has.
func (st *stage) held() int {
	locks, _, _ := st.leftover()
	return locks
}

// steal makes another process take key, whoever holds it.
func (st *stage) steal(key sqllock.Key) {
	st.mu.Lock()
	defer st.mu.Unlock()
	st.holders[dialectKey(key)] = map[*session]bool{{link: new(link)}: true}
}

// giveUp makes the holder of key give it up.
func (st *stage) giveUp(key sqllock.Key) {
	st.mu.Lock()
	defer st.mu.Unlock()
	delete(st.holders, dialectKey(key))
}

// A conn is a connection of a script.
type conn struct {
	*session
	stage  *stage
	number int // from 1

	connMu  sync.Mutex      // protects what follows
	batches []dialect.Batch // as sent
	before  func() error    // called before a batch takes effect; may block
	after   func() error    // called after it took effect, before the response
	onToken func() error    // called before a token; may block
	aborted bool
	tokens  int // drawn
}

// hooks sets before and after.
func (c *conn) hooks(before, after func() error) {
	c.connMu.Lock()
	defer c.connMu.Unlock()
	c.before, c.after = before, after
}

// tokenHook sets onToken.
func (c *conn) tokenHook(hook func() error) {
	c.connMu.Lock()
	defer c.connMu.Unlock()
	c.onToken = hook
}

// Exchange implements dialect.Session.
func (c *conn) Exchange(b *dialect.Batch) error {
	c.connMu.Lock()
	c.batches = append(c.batches, cloned(b))
	before, after := c.before, c.after
	c.connMu.Unlock()
	if before != nil {
		if err := before(); err != nil {
			return err
		}
	}
	err := c.session.Exchange(b)
	if err == nil && after != nil {
		err = after()
	}
	return err
}

// cloned returns a copy of b as it was sent.
func cloned(b *dialect.Batch) dialect.Batch {
	c := dialect.Batch{Release: slices.Clone(b.Release), Try: slices.Clone(b.Try)}
	for _, l := range b.Looks {
		c.Looks = append(c.Looks, dialect.Look{Keys: slices.Clone(l.Keys), Want: l.Want})
	}
	for _, s := range b.Stacks {
		var levels [][]dialect.Key
		for _, keys := range s.Levels {
			levels = append(levels, slices.Clone(keys))
		}
		c.Stacks = append(c.Stacks, dialect.Stack{Levels: levels})
	}
	return c
}

// statements returns how many batches were sent, heartbeats included.
func (c *conn) statements() int {
	c.connMu.Lock()
	defer c.connMu.Unlock()
	return len(c.batches)
}

// sent returns the batches so far, without heartbeats.
func (c *conn) sent() []dialect.Batch {
	c.connMu.Lock()
	defer c.connMu.Unlock()
	return slices.DeleteFunc(slices.Clone(c.batches), func(b dialect.Batch) bool { return b.Keys() == 0 })
}

// Room implements dialect.Session.
func (c *conn) Room() int { return cmp.Or(c.stage.script.room, c.session.Room()) }

// Token implements dialect.Session.
func (c *conn) Token() (dialect.Token, error) {
	c.connMu.Lock()
	hook := c.onToken
	c.connMu.Unlock()
	if hook != nil {
		if err := hook(); err != nil {
			return dialect.Token{}, err
		}
	}
	c.connMu.Lock()
	c.tokens++
	c.connMu.Unlock()
	return c.session.Token()
}

// drawn returns how many tokens were drawn.
func (c *conn) drawn() int {
	c.connMu.Lock()
	defer c.connMu.Unlock()
	return c.tokens
}

// Abort implements dialect.Session.
func (c *conn) Abort() {
	c.connMu.Lock()
	c.aborted = true
	c.connMu.Unlock()
	c.session.Abort()
}

// say sends a statement that changes no lock. The server hears from the session.
func (c *conn) say() error { return c.roundTrip(func(bool) {}) }

// Process implements dialect.Backend.
func (c *conn) Process() dialect.Process {
	return dialect.Process{PID: int64(c.number), Start: int64(c.number) * 1e6}
}

// failedStatement is the failure of a statement of which the session lives.
var failedStatement error = &dialect.Failure{Kind: dialect.Statement, Reason: "simulated"}

// fail returns a hook that fails with err.
func fail(err error) func() error { return func() error { return err } }

// hold returns a hook that holds statements back until resume is called or the
// test ends.
func hold(t *testing.T) (hook func() error, resume func()) {
	gate := make(chan struct{})
	resume = sync.OnceFunc(func() { close(gate) })
	t.Cleanup(resume)
	return func() error { <-gate; return nil }, resume
}

// called is the result of a call.
type called struct {
	locks sqllock.Locks
	err   error
}

// begin calls f in a goroutine. It returns when all goroutines wait.
func begin(f func() (sqllock.Locks, error)) <-chan called {
	c := make(chan called, 1)
	go func() {
		locks, err := f()
		c <- called{locks, err}
	}()
	synctest.Wait()
	return c
}

func beginTry(ctx context.Context, s *sqllock.Session, key sqllock.Key) <-chan called {
	return begin(func() (sqllock.Locks, error) { return one(s.TryLock(ctx, key)) })
}

func beginLock(ctx context.Context, s *sqllock.Session, key sqllock.Key) <-chan called {
	return begin(func() (sqllock.Locks, error) { return one(s.Lock(ctx, key)) })
}

func beginUnlock(l *sqllock.Lock) <-chan called {
	return begin(func() (sqllock.Locks, error) { return nil, l.Unlock() })
}

func mustTry(t *testing.T, s *sqllock.Session, key sqllock.Key) *sqllock.Lock {
	t.Helper()
	lock, err := s.TryLock(background, key)
	if err != nil {
		t.Fatalf("TryLock: %v", err)
	}
	return lock
}

func mustRead(t *testing.T, s *sqllock.Session, key sqllock.Key) *sqllock.Lock {
	t.Helper()
	lock, err := s.TryRLock(background, key)
	if err != nil {
		t.Fatalf("TryRLock: %v", err)
	}
	return lock
}

func mustUnlock(t *testing.T, l *sqllock.Lock) {
	t.Helper()
	if err := l.Unlock(); err != nil {
		t.Fatalf("Unlock: %v", err)
	}
}

// pending fails the test if the call has returned.
func pending(t *testing.T, what string, c <-chan called) {
	t.Helper()
	synctest.Wait()
	select {
	case got := <-c:
		t.Fatalf("%s returned: %v, %v", what, got.locks, got.err)
	default:
	}
}

// returned returns the result of the call. It fails the test if the call has not
// returned by now.
func returned(t *testing.T, what string, c <-chan called) called {
	t.Helper()
	synctest.Wait()
	select {
	case got := <-c:
		return got
	default:
		t.Fatalf("%s has not returned", what)
		return called{}
	}
}

// granted returns the lock of a call, which must have got it by now.
func granted(t *testing.T, what string, c <-chan called) *sqllock.Lock {
	t.Helper()
	got := returned(t, what, c)
	wantErr(t, what, got.err, nil)
	return got.locks[0]
}

// wantReturned fails the test unless the call has returned want.
func wantReturned(t *testing.T, what string, c <-chan called, want error) {
	t.Helper()
	wantErr(t, what, returned(t, what, c).err, want)
}

// after returns call after d.
func after(d time.Duration, call <-chan called) <-chan called {
	time.Sleep(d)
	return call
}

func wantErr(t *testing.T, what string, got, want error) {
	t.Helper()
	if !errors.Is(got, want) {
		t.Fatalf("%s: %v, want %v", what, got, want)
	}
}

// second returns the error of a call.
func second[T any](_ T, err error) error { return err }

// ids returns the keys of numbers.
func ids(numbers ...int64) (keys []sqllock.Key) {
	for _, n := range numbers {
		keys = append(keys, sqllock.ID(n))
	}
	return keys
}

const (
	// ticks is longer than any poll or pause between attempts to connect.
	ticks = 5 * time.Second

	// fairness is how long the callers of a process hand a key to each other.
	fairness = time.Second

	// pollMost is longer than the pause between two polls.
	pollMost = 60 * time.Millisecond

	// trust is how long a Session with the default lease relies on its locks after
	// it sent the last statement that was answered: 10 s, less a thousandth, less
	// a fifth.
	trust = 7990 * time.Millisecond
)
