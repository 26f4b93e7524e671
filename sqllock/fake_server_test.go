package sqllock

import (
	"cmp"
	"context"
	"database/sql"
	"errors"
	"log/slog"
	"net"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/latchkey-go/latchkey/internal/dialect"
)

var background = context.Background()

// A fakeServer is a database in memory for tests of the engine. Hooks of a test
// hold a statement back, or make it fail, at an exact point. It has no clock and
// no network: the server of internal/simulation has both, and no hooks.
//
// A file x_engine_test.go has the tests of x that need a fakeServer. The tests in
// x_test.go use a real database.
type fakeServer struct {
	mu       sync.Mutex // protects what follows up to the blank line
	locks    fakeLocks
	sessions []*fakeSession                                // all that were ever opened
	secrets  map[*fakeSession]map[dialect.SecretCheck]bool // the checks that sessions use
	opens    int                                           // calls of Open
	tokens   int64                                         // the last token
	carries  int                                           // keys that fit into a statement; 0: any number

	withoutReaders bool // it has no shared locks
	perSession     int  // HeldPerSession; 0: the default

	onOpen    func(n int) error  // called before the nth session opens, from 1; may block
	onSession func(*fakeSession) // called after a session has opened
}

func newFakeServer() *fakeServer {
	return &fakeServer{locks: newFakeLocks(), secrets: make(map[*fakeSession]map[dialect.SecretCheck]bool)}
}

// room returns how many keys fit into a statement.
func (f *fakeServer) room() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return cmp.Or(f.carries, 1<<20)
}

// carry sets how many keys fit into a statement.
func (f *fakeServer) carry(keys int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.carries = keys
}

// Traits implements dialect.Dialect.
func (f *fakeServer) Traits() dialect.Traits {
	return dialect.Traits{Lease: defaultLease, HeldPerSession: cmp.Or(f.perSession, dialect.HeldPerConnection), CloseTimeout: 100 * time.Millisecond, Readers: !f.withoutReaders}
}

// Open implements dialect.Dialect.
func (f *fakeServer) Open(context.Context, *sql.DB, dialect.Settings) (dialect.Session, error) {
	f.mu.Lock()
	f.opens++
	n, hook := f.opens, f.onOpen
	f.mu.Unlock()
	if hook != nil {
		if err := hook(n); err != nil {
			return nil, err
		}
	}
	s := &fakeSession{server: f, number: n, closed: make(chan struct{})}
	f.mu.Lock()
	f.sessions = append(f.sessions, s)
	if f.onSession != nil {
		f.onSession(s)
	}
	f.mu.Unlock()
	return s, nil
}

// session returns the nth session that was opened, from 0.
func (f *fakeServer) session(n int) *fakeSession {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.sessions[n]
}

// held returns the number of locks in the database.
func (f *fakeServer) held() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.locks.len()
}

// steal makes another process take key, whoever holds it.
func (f *fakeServer) steal(key Key) { f.set(key, &fakeSession{}) }

// giveUp makes the holder of key give it up.
func (f *fakeServer) giveUp(key Key) { f.set(key, nil) }

func (f *fakeServer) set(key Key, owner *fakeSession) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if owner == nil {
		delete(f.locks.owners, key.id())
	} else {
		f.locks.owners[key.id()] = owner
	}
}

// A fakeSession is a session of a fakeServer.
type fakeSession struct {
	server *fakeServer
	number int // from 1
	closed chan struct{}
	once   sync.Once

	mu      sync.Mutex
	batches []dialect.Batch // as sent
	before  func() error    // called before a batch takes effect; may block
	after   func() error    // called after it took effect, before the response
	onToken func() error    // called before a token; may block
	tokens  int             // given
	asked   int             // calls of UseSecret
	onUse   func() error    // called before UseSecret takes effect; may block
	onDrop  func() error    // called after DropSecret has taken effect
	aborted bool
}

// hooks sets before and after.
func (s *fakeSession) hooks(before, after func() error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.before, s.after = before, after
}

// sent returns the batches so far, without heartbeats.
func (s *fakeSession) sent() []dialect.Batch {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.DeleteFunc(slices.Clone(s.batches), func(b dialect.Batch) bool {
		return len(b.Release)+len(b.Try)+len(b.Any)+len(b.All)+len(b.Each) == 0
	})
}

// Exchange implements dialect.Session.
func (s *fakeSession) Exchange(b *dialect.Batch) error {
	s.mu.Lock()
	s.batches = append(s.batches, dialect.Batch{
		Release: slices.Clone(b.Release), Try: slices.Clone(b.Try), Any: slices.Clone(b.Any), All: slices.Clone(b.All), Each: slices.Clone(b.Each),
	})
	for i, g := range b.Each { // their memory is used again
		s.batches[len(s.batches)-1].Each[i].Keys = slices.Clone(g.Keys)
	}
	before, after := s.before, s.after
	s.mu.Unlock()
	if before != nil {
		if err := before(); err != nil {
			return err
		}
	}
	s.carryOut(b)
	if after != nil {
		if err := after(); err != nil {
			return err
		}
	}
	select {
	case <-s.closed:
		return &dialect.Failure{Kind: dialect.Gone, Reason: "closed"}
	default:
		return nil
	}
}

func (s *fakeSession) carryOut(b *dialect.Batch) {
	locks := s.server.locks
	s.server.mu.Lock()
	defer s.server.mu.Unlock()
	for _, k := range b.Release {
		if !locks.release(s, k) {
			b.NotHeld = append(b.NotHeld, k)
		}
	}
	for _, k := range b.Try {
		if !locks.take(s, k) {
			b.Busy = append(b.Busy, k)
		}
	}
	for _, g := range b.Any {
		b.Won = append(b.Won, locks.takeOne(s, g))
	}
	for _, set := range b.All {
		b.Missing = append(b.Missing, locks.takeAll(s, set))
	}
	for request := range dialect.Requests(b.Each) {
		locks.takeEach(s, request)
	}
}

// Room implements dialect.Session.
func (s *fakeSession) Room() int { return s.server.room() }

// ReservedToken implements dialect.Session.
func (s *fakeSession) ReservedToken() (dialect.Token, bool) { return dialect.Token{}, false }

// Token implements dialect.Session.
func (s *fakeSession) Token() (dialect.Token, error) {
	s.mu.Lock()
	hook := s.onToken
	s.mu.Unlock()
	if hook != nil {
		if err := hook(); err != nil {
			return dialect.Token{}, err
		}
	}
	s.mu.Lock()
	s.tokens++
	s.mu.Unlock()
	s.server.mu.Lock()
	defer s.server.mu.Unlock()
	s.server.tokens++
	return dialect.Token{Number: s.server.tokens}, nil
}

// UseSecret implements dialect.Session.
func (s *fakeSession) UseSecret(c dialect.SecretCheck) (conflict bool, err error) {
	s.mu.Lock()
	s.asked++
	hook := s.onUse
	s.mu.Unlock()
	if hook != nil {
		if err := hook(); err != nil {
			return false, err
		}
	}
	s.server.mu.Lock()
	defer s.server.mu.Unlock()
	if s.server.conflicts(c) {
		return true, nil
	}
	if s.server.secrets[s] == nil {
		s.server.secrets[s] = make(map[dialect.SecretCheck]bool)
	}
	s.server.secrets[s][c] = true
	return false, nil
}

// conflicts reports whether a session uses the class of c with another
// fingerprint. mu is held.
func (f *fakeServer) conflicts(c dialect.SecretCheck) bool {
	for _, used := range f.secrets {
		for other := range used {
			if other.Class == c.Class && other.Fingerprint != c.Fingerprint {
				return true
			}
		}
	}
	return false
}

// DropSecret implements dialect.Session. It carries a drop out before its hook
// may make it fail.
func (s *fakeSession) DropSecret(c dialect.SecretCheck) error {
	s.mu.Lock()
	hook := s.onDrop
	s.mu.Unlock()
	s.server.mu.Lock()
	if !s.server.secrets[s][c] {
		panic("the engine drops a check that the session does not use")
	}
	delete(s.server.secrets[s], c)
	s.server.mu.Unlock()
	if hook != nil {
		return hook()
	}
	return nil
}

func (s *fakeSession) tokenHook(hook func() error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.onToken = hook
}

// Held implements dialect.Session.
func (s *fakeSession) Held() ([]dialect.Key, error) {
	s.server.mu.Lock()
	defer s.server.mu.Unlock()
	return s.server.locks.of(s), nil
}

func (s *fakeSession) Socket() net.Conn { return nil }

// Process implements dialect.Backend.
func (s *fakeSession) Process() dialect.Process {
	return dialect.Process{PID: int64(s.number), Start: int64(s.number) * 1e6}
}

func (s *fakeSession) Abort() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.aborted = true
}

func (s *fakeSession) Destroy() {
	s.once.Do(func() { close(s.closed) })
	s.server.mu.Lock()
	defer s.server.mu.Unlock()
	for _, k := range s.server.locks.of(s) {
		s.server.locks.release(s, k)
	}
	delete(s.server.secrets, s)
}

var errGone error = &dialect.Failure{Kind: dialect.Gone, Reason: "gone"}

// simulate runs test in virtual time with a Session on a fake server.
func simulate(t *testing.T, test func(t *testing.T, s *Session, server *fakeServer), opts ...Option) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		server := newFakeServer()
		opts := append([]Option{withFake(server), withoutLog()}, opts...)
		s, err := Open(t.Context(), new(sql.DB), opts...)
		if err != nil {
			t.Fatal(err)
		}
		defer func() {
			if err := s.Close(); err != nil {
				t.Errorf("Close: %v", err)
			}
		}()
		test(t, s, server)
	})
}

func withFake(server *fakeServer) Option {
	return func(o *options) { o.dialect = server }
}

// called is the result of a call.
type called struct {
	lock *Lock
	err  error
}

// begin calls f in a goroutine. It returns when all goroutines wait.
func begin(f func() (*Lock, error)) <-chan called {
	c := make(chan called, 1)
	go func() {
		lock, err := f()
		c <- called{lock, err}
	}()
	synctest.Wait()
	return c
}

func beginTry(ctx context.Context, s *Session, key Key) <-chan called {
	return begin(func() (*Lock, error) { return s.TryLock(ctx, key) })
}

func beginUnlock(l *Lock) <-chan called {
	return begin(func() (*Lock, error) { return nil, l.Unlock() })
}

func mustTry(t *testing.T, s *Session, key Key) *Lock {
	t.Helper()
	lock, err := s.TryLock(context.Background(), key)
	if err != nil {
		t.Fatalf("TryLock: %v", err)
	}
	return lock
}

func mustUnlock(t *testing.T, l *Lock) {
	t.Helper()
	if err := l.Unlock(); err != nil {
		t.Fatalf("Unlock: %v", err)
	}
}

// pending fails the test if the call has returned.
func pending(t *testing.T, what string, c <-chan called) {
	t.Helper()
	select {
	case got := <-c:
		t.Fatalf("%s returned: %v, %v", what, got.lock, got.err)
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

func wantErr(t *testing.T, what string, got called, want error) {
	t.Helper()
	if !errors.Is(got.err, want) {
		t.Fatalf("%s: %v, want %v", what, got.err, want)
	}
}

// hold returns a hook that holds statements back until resume is called or the
// test ends.
func hold(t *testing.T) (hook func() error, resume func()) {
	gate := make(chan struct{})
	resume = sync.OnceFunc(func() { close(gate) })
	t.Cleanup(resume)
	return func() error { <-gate; return nil }, resume
}

// ticks is longer than any poll or backoff.
const ticks = 5 * time.Second

// withPerConn makes a Session open another connection for each n locks held. It
// must follow withFake.
func withPerConn(n int) Option {
	return func(o *options) { o.dialect.(*fakeServer).perSession = n }
}

// withoutLog makes a Session log nothing.
func withoutLog() Option { return WithLogger(slog.New(slog.DiscardHandler)) }
