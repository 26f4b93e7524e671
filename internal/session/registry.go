package session

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
	"github.com/latchkey-go/latchkey/internal/keytable"
)

// A registrar is what one Session writes about itself, for people.
type registrar struct {
	process int64
	holder  string
	schema  string
	tables  atomic.Pointer[postgres.Registry] // nil: not found yet
}

// newRegistrar returns a registrar with a number of its own for the process.
func newRegistrar(o Options) *registrar {
	return &registrar{
		process: rand.Int64(), //nolint:gosec // a name, not a secret
		holder:  cmp.Or(o.HolderName, dialect.Holder()), schema: o.Schema,
	}
}

// enroll sees that session, which is about to serve, can write to the registry.
// In Open it fails if a table, a column or a right is missing (SQLSTATEs of class
// 42), so that a program fails at its start. A later connection does without
// rather than fail.
func (s *Session) enroll(ctx context.Context, session dialect.Session, opens bool) error {
	err := s.register(ctx, session)
	switch {
	case !dialect.Survives(err): // also if there is none
		return err
	case opens && strings.HasPrefix(errcode.SQLState(err), "42"):
		return fmt.Errorf("%w: %w", ErrConfig, err)
	}
	s.options.Log.Warn(registryFails, "reason", err)
	return nil
}

// register finds the registry, if no connection has yet, and writes that session
// exists.
func (s *Session) register(ctx context.Context, session dialect.Session) error {
	r := s.registrar
	if r.tables.Load() == nil {
		tables, err := postgres.FindRegistry(ctx, s.db, r.schema)
		if err != nil {
			return err
		}
		r.tables.Store(&tables)
	}
	err := session.(postgres.Registrar).Register(*r.tables.Load(), &postgres.Register{
		Process: r.process, Holder: r.holder, Lease: s.options.Lease, IsFirst: true, NoWaits: true})
	if errcode.SQLState(err) == errcode.Forbidden {
		return fmt.Errorf("WithRegistry needs a role that may SELECT, INSERT, UPDATE and DELETE in latchkey_heartbeats and latchkey_waits: %w", err)
	}
	return err
}

const registryFails = "sqllock: the registry of heartbeats cannot be written"

// register is the errand that writes the registry, once a heartbeat. It logs when
// that begins to fail, and when it works again.
func (c *connection) register(heartbeat bool) *errand {
	tables := c.s.registrar.tables.Load()
	if tables == nil || !heartbeat {
		return nil
	}
	row := c.toRegister()
	return &errand{
		send: func() error { return c.session.(postgres.Registrar).Register(*tables, row) },
		complete: func(err error) (log func()) {
			failed := c.unregistered
			c.unregistered = err != nil
			switch logger := c.s.options.Log; {
			case err != nil && !failed:
				return func() { logger.Warn(registryFails, "reason", err) }
			case err == nil && failed:
				return func() { logger.Info("sqllock: the registry of heartbeats is written again") }
			}
			return nil
		},
	}
}

// toRegister collects the record. The first slot records the waiting callers.
func (c *connection) toRegister() *postgres.Register {
	s := c.s
	row := &postgres.Register{Process: s.registrar.process, Holder: s.registrar.holder, Lease: s.options.Lease, NoWaits: c.slot != s.slots[0]}
	at := Now()
	s.Table.Each(&c.owner, func(v keytable.View) {
		if age := at - v.Since; v.Settled && age >= s.options.Heartbeat {
			row.Held = append(row.Held, postgres.HeldKey{Key: DBKey(v.ID, v.Mode), Age: age, Namespace: v.Label, Name: v.Name})
		}
	})
	if row.NoWaits {
		return row
	}
	waits := make(waitingKeys)
	for w := range s.waits {
		if age := at - w.Since; s.Notes(age) {
			waits.add(w, age)
		}
	}
	for _, w := range waits {
		row.Waits = append(row.Waits, *w)
	}
	if len(row.Waits) > 0 { // a waiting Session may hold nothing that says which process it is
		row.Held = append(row.Held, postgres.HeldKey{Key: dialect.Key{ID: s.registrar.process}})
	}
	return row
}

// A Wait is a call that waits, for the registry of a Session.
type Wait struct {
	Since   time.Duration
	Keys    map[keytable.ID]struct{}
	Any     bool             // the caller waits for any of several keys: what it holds is left out, since each key may not be the one that it gets
	Holding []*keytable.Hold // when the wait began
}

// Note notes a wait, until end is called.
func (s *Session) Note(w *Wait) (end func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.waits[w] = struct{}{}
	return func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		delete(s.waits, w)
	}
}

// Notes reports whether the registry has a wait of this length.
func (s *Session) Notes(wait time.Duration) bool { return wait >= s.options.Heartbeat }

// Registers reports whether the Session has a registry.
func (s *Session) Registers() bool { return s.registrar != nil }

// ProcessOf returns the server process that has h, a hold of s, or one without a
// PID.
func (s *Session) ProcessOf(h *keytable.Hold) dialect.Process {
	return h.Owner().Life.(*connection).process()
}

// waitingKeys counts the waiting callers, by the key and by what they hold.
type waitingKeys map[waitingKey]*postgres.WaitingKey

type waitingKey struct {
	key, holding dialect.Key
	holds        bool
}

// add adds w. It leaves out locks that have ended since the wait began.
func (ws waitingKeys) add(w *Wait, age time.Duration) {
	for id := range w.Keys {
		key, holds := DBKey(id, keytable.Exclusive), false
		for _, h := range w.Holding {
			if !w.Any && h.Ended() == keytable.NotEnded {
				ws.count(waitingKey{key, DBKey(h.ID(), keytable.Exclusive), true}, age)
				holds = true
			}
		}
		if !holds {
			ws.count(waitingKey{key: key}, age)
		}
	}
}

func (ws waitingKeys) count(k waitingKey, age time.Duration) {
	w := ws[k]
	if w == nil {
		w = &postgres.WaitingKey{Key: k.key, Holding: k.holding, Holds: k.holds}
		ws[k] = w
	}
	w.Waiters++
	w.Age = max(w.Age, age)
}
