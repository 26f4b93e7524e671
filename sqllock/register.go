package sqllock

import (
	"cmp"
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/latchkey-go/latchkey/internal/dialect"
)

// WithRegistry has the Session write down, for people, which locks it holds and which keys its callers
// wait for, into the tables of lockwatch.Schema, once a heartbeat and in the heartbeat's own round
// trip; see lockwatch.Inspect and lockwatch.Watch. The tables are in the schema of this name, spelt as in the catalog, or, if it
// is empty, where the search_path finds them; the role needs SELECT, INSERT, UPDATE and DELETE on them.
//
// Open fails if the tables are not there or may not be written to (one WithLazyOpen that connects later logs it, and
// tries again with its next connection). After that the registry never costs a lock: what cannot be written is
// logged, and tried again with the next heartbeat. It does not wait for the disk. Only what has been held, or waited for,
// for a heartbeat is written. That takes as long as some tens of acquisitions for a few such locks, and some 20 ms, in which
// the connection does nothing else, for a thousand.
//
// A name is written only if the lock has been given one: [Lock.SetName].
//
// It is for PostgreSQL's advisory locks: elsewhere Open fails with an error that matches errors.ErrUnsupported. (In a
// lease table every lock is a row already.)
func WithRegistry(schema string) Option {
	return func(o *options) { o.registry = &registryOptions{schema: schema} }
}

// WithHolder is what a Session says of itself in the registry of [WithRegistry], instead of the names of its host and
// process.
func WithHolder(text string) Option {
	return func(o *options) { o.holder = text }
}

type registryOptions struct{ schema string }

// SetName gives the lock a name for people, which a Session with [WithRegistry] writes down from its next
// heartbeat on. The kit never does so by itself: it may be personal data, and whoever may read the
// table sees it. What is longer than 200 bytes is cut. The name of a lock with several readers is that of one of them.
func (l *Lock) SetName(name string) {
	if l == nil {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.attachLocked().name = name
}

func (l *Lock) name() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.more == nil {
		return ""
	}
	return l.more.name
}

// A registrar writes for one Session.
type registrar struct {
	process int64
	holder  string
	schema  string
	tables  atomic.Pointer[dialect.Registry] // nil: not found yet
}

func newRegistrar(o options) *registrar {
	return &registrar{
		process: rand.Int64(), //nolint:gosec // a name, not a secret
		holder:  cmp.Or(o.holder, dialect.Holder()), schema: o.registry.schema,
	}
}

// enroll sees that session, which is about to serve, can write into the registry.
func (s *Session) enroll(ctx context.Context, session dialect.Session) error {
	r := s.registrar
	if r.tables.Load() == nil {
		tables, err := dialect.FindRegistry(ctx, s.db, r.schema)
		if err != nil {
			return err
		}
		r.tables.Store(&tables)
	}
	err := session.(dialect.Registrar).Register(*r.tables.Load(), &dialect.Register{
		Process: r.process, Holder: r.holder, Lease: s.options.lease, IsFirst: true, NoWaits: true})
	if dialect.SQLState(err) == insufficientPrivilege {
		return fmt.Errorf("WithRegistry needs a role that may SELECT, INSERT, UPDATE and DELETE in latchkey_heartbeats and latchkey_waits: %w", err)
	}
	return err
}

// enrollFirst is enroll for Open's own connection: it fails if a table, a column or a right is missing (SQLSTATEs of class
// 42), which a program is told at the start.
func (s *Session) enrollFirst(ctx context.Context, session dialect.Session) error {
	err := s.enroll(ctx, session)
	if strings.HasPrefix(dialect.SQLState(err), "42") {
		return &enrollError{err}
	}
	return s.withoutRegistry(err)
}

// enrollLater is enroll for a connection that comes when Open has returned: it does without the registry
// rather than fail.
func (s *Session) enrollLater(ctx context.Context, session dialect.Session) error {
	return s.withoutRegistry(s.enroll(ctx, session))
}

// withoutRegistry is err of enroll, unless the session lives: then that is logged.
func (s *Session) withoutRegistry(err error) error {
	if err == nil || !survived(err) {
		return err
	}
	s.options.log.Warn(registryFails, "reason", err)
	return nil
}

// An enrollError is why Open with [WithRegistry] fails: not for the locks' sake.
type enrollError struct{ err error }

func (e *enrollError) Error() string { return "sqllock: " + e.err.Error() }
func (e *enrollError) Unwrap() error { return e.err }

// Is makes errors.Is(err, ErrConfig) hold.
func (e *enrollError) Is(target error) bool { return target == ErrConfig }

const insufficientPrivilege = "42501"

const registryFails = "sqllock: the registry of heartbeats cannot be written"

// register writes down what is held and waited for, if that is due or was not done for a heartbeat. It reports
// whether it sent anything.
func (l *lease) register(due bool) bool {
	s := l.backend.s
	if s.registrar == nil || s.registrar.tables.Load() == nil || !due && now()-l.registered < s.options.heartbeat {
		return false
	}
	l.registered = now()
	r := l.toRegister()
	if r == nil {
		return false
	}
	l.watch.expect()
	err := l.session.(dialect.Registrar).Register(*s.registrar.tables.Load(), r)
	l.watch.answered()
	if err != nil && !l.bears(err) {
		return true
	}
	s.table.mu.Lock()
	l.answeredLocked(now())
	s.table.mu.Unlock()
	l.tellRegistry(err)
	return true
}

// tellRegistry logs when the registry begins to fail, and when it works again.
func (l *lease) tellRegistry(err error) {
	log := l.backend.s.options.log
	switch failing := err != nil; {
	case failing && !l.unregistered:
		log.Warn(registryFails, "reason", err)
	case !failing && l.unregistered:
		log.Info("sqllock: the registry of heartbeats is written again")
	}
	l.unregistered = err != nil
}

// toRegister is what to write down now; nil when l has ended.
func (l *lease) toRegister() *dialect.Register {
	s, t := l.backend.s, l.backend.s.table
	r := &dialect.Register{Process: s.registrar.process, Holder: s.registrar.holder, Lease: s.options.lease}
	t.mu.Lock()
	defer t.mu.Unlock()
	if l.dead.Load() {
		return nil
	}
	r.NoWaits = l.backend != s.backends[0]
	at := now()
	waits := make(waitingKeys)
	for e := range t.entries.all() {
		if e.holds.lease == l && e.state == held && at-e.acquired >= s.options.heartbeat {
			r.Held = append(r.Held, e.heldKey(at))
		}
		for _, a := range e.asks {
			if a.waits && at-a.since >= s.options.heartbeat {
				waits.add(e.key, a, at)
			}
		}
	}
	for w := range t.sets {
		if at-w.since < s.options.heartbeat {
			continue
		}
		for _, k := range w.keys {
			waits.add(k.id(), w, at)
		}
	}
	for _, w := range waits {
		r.Waits = append(r.Waits, *w)
	}
	l.sendingLocked(l.backend.oldest) // who has queued waits for this, too
	return r
}

// heldKey is e, which is held, for the registry. table.mu is held.
func (e *entry) heldKey(at time.Duration) dialect.HeldKey {
	h := dialect.HeldKey{Key: e.asked(), Age: at - e.acquired}
	for _, l := range e.appendHolders(nil) {
		h.Namespace = string(l.key.namespace)
		if h.Name == "" {
			h.Name = l.name()
		}
	}
	return h
}

// waitingKeys is who waits, by what for and what they hold themselves.
type waitingKeys map[waitingKey]*dialect.WaitingKey

type waitingKey struct {
	key, holding dialect.Key
	holds        bool
}

// add adds a, which waits for key. Of one that waits for any of several keys it is not said
// what it holds: that key may not be the one that it gets.
func (ws waitingKeys) add(key dialect.Key, a *ask, at time.Duration) {
	holding := a.holding
	if len(a.keys) > 1 && !a.all {
		holding = nil
	}
	if len(holding) == 0 {
		ws.count(waitingKey{key: key}, a, at)
	}
	for _, k := range holding {
		ws.count(waitingKey{key, k, true}, a, at)
	}
}

func (ws waitingKeys) count(k waitingKey, a *ask, at time.Duration) {
	w := ws[k]
	if w == nil {
		w = &dialect.WaitingKey{Key: k.key, Holding: k.holding, Holds: k.holds}
		ws[k] = w
	}
	w.Waiters++
	w.Age = max(w.Age, at-a.since)
}

// noteWait notes for the registry since when a waits, and which of this table's locks its caller
// holds: those that its context carries. (Another Session's may be in another database, where
// the key is somebody else's.) table.mu is not held: contexts may be anybody's.
func (t *table) noteWait(a *ask) {
	if !t.registers {
		return
	}
	a.since = now()
	for c := carrier(a.ctx); c != nil; c = carrier(c.parent) {
		key := c.lock.key.id()
		if c.lock.home == home(t) && c.lock.ended.Load() == endNot && !slices.Contains(a.holding, key) {
			a.holding = append(a.holding, key)
		}
	}
}

// carrierKey is the context key under which a boundContext gives itself.
type carrierKey struct{}

// carrier is the innermost context in ctx that carries a lock, or nil.
func carrier(ctx context.Context) *boundContext {
	c, _ := ctx.Value(carrierKey{}).(*boundContext)
	return c
}
