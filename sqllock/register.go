package sqllock

import (
	"cmp"
	"context"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync/atomic"
	"time"

	"github.com/latchkey-go/latchkey/internal/dialect"
	"github.com/latchkey-go/latchkey/internal/dialect/errcode"
	"github.com/latchkey-go/latchkey/internal/dialect/postgres"
)

// WithRegistry makes the Session record, for people, which locks it holds and
// for which keys its callers wait. The functions lockwatch.Inspect and
// lockwatch.Watch read this.
//
// It also records a wait at a ConnLocker, at a TxLocker or in LockTx in the same
// database, if the caller's context carries a lock of the Session. A wait of this
// kind that lasts costs a statement, or three in LockTx.
//
// The records go into the tables of lockwatch.Schema, in the schema of this
// name, spelt as in the catalog. If it is empty, the search_path finds them.
// The role needs SELECT, INSERT, UPDATE and DELETE on them. Open fails if they
// are missing or the role may not write to them. A later connection of
// WithLazyOpen logs this.
//
// The registry never costs a lock. A failed write is logged and repeated with
// the next heartbeat. A write comes with each heartbeat, in the same round
// trip, and does not wait for the disk. It contains only what has been held, or
// waited for, as long as a heartbeat. A few such locks cost as much as some
// tens of acquisitions. A thousand take the connection about 20 ms. A name is
// written only for a lock that has one: see [Lock.SetName].
//
// WithRegistry is for PostgreSQL's advisory locks. Elsewhere Open returns an
// error that matches errors.ErrUnsupported. In a lease table every lock is a
// row already.
func WithRegistry(schema string) Option {
	return func(o *options) { o.registry = &registryOptions{schema: schema} }
}

// WithHolder sets the name under which a Session appears in the registry of
// [WithRegistry]. The default consists of its host and process.
func WithHolder(text string) Option {
	return func(o *options) { o.holder = text }
}

// SetName gives the lock a name for people. A Session with [WithRegistry]
// writes it down with each heartbeat. The package never sets a name by itself,
// because a name may be personal data and whoever reads the table sees it. A
// name is cut after 200 bytes. Of several readers of a key one name is shown.
func (l *Lock) SetName(name string) {
	if l == nil {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.attachLocked().name = name
}

// name returns the name of l, or "".
func (l *Lock) name() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.more == nil {
		return ""
	}
	return l.more.name
}

// A registrar is what one Session writes about itself.
type registrar struct {
	process int64
	holder  string
	schema  string
	tables  atomic.Pointer[postgres.Registry] // nil: not found yet
}

// newRegistrar returns a registrar with a number of its own for the process.
func newRegistrar(o options) *registrar {
	return &registrar{
		process: rand.Int64(), //nolint:gosec // a name, not a secret
		holder:  cmp.Or(o.holder, dialect.Holder()), schema: o.registry.schema,
	}
}

// enroll sees that session, which is about to serve, can write to the registry.
func (s *Session) enroll(ctx context.Context, session dialect.Session) error {
	r := s.registrar
	if r.tables.Load() == nil {
		tables, err := postgres.FindRegistry(ctx, s.db, r.schema)
		if err != nil {
			return err
		}
		r.tables.Store(&tables)
	}
	err := session.(postgres.Registrar).Register(*r.tables.Load(), &postgres.Register{
		Process: r.process, Holder: r.holder, Lease: s.options.lease, IsFirst: true, NoWaits: true})
	if errcode.SQLState(err) == insufficientPrivilege {
		return fmt.Errorf("WithRegistry needs a role that may SELECT, INSERT, UPDATE and DELETE in latchkey_heartbeats and latchkey_waits: %w", err)
	}
	return err
}

// enrollFirst is enroll for Open. It fails if a table, a column or a right is
// missing (SQLSTATEs of class 42), so that a program fails at its start.
func (s *Session) enrollFirst(ctx context.Context, session dialect.Session) error {
	err := s.enroll(ctx, session)
	if strings.HasPrefix(errcode.SQLState(err), "42") {
		return &enrollError{err}
	}
	return s.withoutRegistry(err)
}

// enrollLater is enroll for a later connection, which does without rather than
// fail.
func (s *Session) enrollLater(ctx context.Context, session dialect.Session) error {
	return s.withoutRegistry(s.enroll(ctx, session))
}

// withoutRegistry returns err of enroll, unless the session lives. Then it logs
// err.
func (s *Session) withoutRegistry(err error) error {
	if err == nil || !dialect.Survives(err) {
		return err
	}
	s.options.log.Warn(registryFails, "reason", err)
	return nil
}

// An enrollError is why Open with [WithRegistry] fails. Locks would work.
type enrollError struct{ err error }

func (e *enrollError) Error() string { return "sqllock: " + e.err.Error() }
func (e *enrollError) Unwrap() error { return e.err }

// Is makes errors.Is(err, ErrConfig) hold.
func (e *enrollError) Is(target error) bool { return target == ErrConfig }

const insufficientPrivilege = "42501"

const registryFails = "sqllock: the registry of heartbeats cannot be written"

// prepareRegistryLocked prepares a record once a heartbeat.
func (c *connection) prepareRegistryLocked() bool {
	s := c.slot.s
	if s.registrar == nil || s.registrar.tables.Load() == nil || !c.round.due && now()-c.registered < s.options.heartbeat {
		return false
	}
	c.registered = now()
	c.round.register = c.toRegisterLocked()
	return true
}

func (c *connection) completeRegistry(err error) {
	if err != nil && !c.stillHolds(err) {
		return
	}
	c.renew()
	c.tellRegistry(err)
}

// tellRegistry logs when the registry begins to fail, and when it works again.
func (c *connection) tellRegistry(err error) {
	log := c.slot.s.options.log
	switch failing := err != nil; {
	case failing && !c.unregistered:
		log.Warn(registryFails, "reason", err)
	case !failing && c.unregistered:
		log.Info("sqllock: the registry of heartbeats is written again")
	}
	c.unregistered = err != nil
}

// toRegisterLocked collects the record. The first slot records the waiting
// callers.
func (c *connection) toRegisterLocked() *postgres.Register {
	s, t := c.slot.s, c.slot.s.table
	row := &postgres.Register{Process: s.registrar.process, Holder: s.registrar.holder, Lease: s.options.lease}
	row.NoWaits = c.slot != s.slots[0]
	at := now()
	waits := make(waitingKeys)
	for k := range t.keys.all() {
		if sessionKeyOf(k).conn == c && k.phase == held && at-k.acquired >= s.options.heartbeat {
			row.Held = append(row.Held, k.heldKey(at))
		}
		for _, r := range k.waiters {
			if r.waits && at-r.since >= s.options.heartbeat {
				waits.addWaiter(k.key, r, at)
			}
		}
	}
	for r := range t.waitingSets {
		if at-r.since < s.options.heartbeat {
			continue
		}
		for _, key := range r.keys {
			waits.addWaiter(key.id(), r, at)
		}
	}
	for _, w := range waits {
		row.Waits = append(row.Waits, *w)
	}
	return row
}

// heldKey returns the record of k, which is held. table.mu is held.
func (k *keyState) heldKey(at time.Duration) postgres.HeldKey {
	h := postgres.HeldKey{Key: k.dbKey(), Age: at - k.acquired}
	for _, l := range k.appendHolders(nil) {
		h.Namespace = string(l.key.namespace)
		if h.Name == "" {
			h.Name = l.name()
		}
	}
	return h
}
