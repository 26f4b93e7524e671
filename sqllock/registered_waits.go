package sqllock

import (
	"context"
	"slices"
	"time"

	"github.com/latchkey-go/latchkey/internal/dialect/postgres"
	"github.com/latchkey-go/latchkey/internal/keytable"
	"github.com/latchkey-go/latchkey/internal/session"
)

// What a Session with a registry is told of waits: which of its callers wait for
// what, and what they hold.

// noteWait notes that a call with ctx waits for keys, for one of them or for all,
// until end is called. It does so only if s has a registry. With the wait it notes
// the locks of s that ctx carries.
//
// A lock of another Session may be in another database, where its key means
// something else. Readers' locks of one key count once.
func noteWait(ctx context.Context, s *session.Session, oneOf bool, keys ...Key) (end func()) {
	if !s.Registers() {
		return func() {}
	}
	w := &session.Wait{Since: session.Now(), Any: oneOf && len(keys) > 1, Keys: make(map[keytable.ID]struct{})}
	for _, k := range keys { // a caller may name one twice
		w.Keys[k.id()] = struct{}{}
	}
	for c := carrier(ctx); c != nil; c = carrier(c.parent) {
		h := &c.lock.hold
		same := func(other *keytable.Hold) bool { return other.ID() == h.ID() }
		if c.lock.home.session == s && h.Ended() == keytable.NotEnded && !slices.ContainsFunc(w.Holding, same) {
			w.Holding = append(w.Holding, h)
		}
	}
	return s.Note(w)
}

// noteTxWait notes that a caller waits in tx for key, until end is called. The
// Session with a registry whose lock ctx carries writes it down, if the lock is
// held in the database of tx. Short waits are not worth the statements.
func noteTxWait(ctx context.Context, tx Tx, key Key, wait time.Duration) (end func()) {
	registered := func(l *Lock) bool {
		return l.hold.Ended() == keytable.NotEnded && l.home.session != nil && l.home.session.Registers()
	}
	c := carrier(ctx)
	for c != nil && !registered(c.lock) {
		c = carrier(c.parent)
	}
	if c == nil || !c.lock.home.session.Notes(wait) {
		return func() {}
	}
	s := c.lock.home.session
	if p := s.ProcessOf(&c.lock.hold); p.PID == 0 || !postgres.IsNeighbourXact(ctx, tx, p) { // 0: behind a pooler
		return func() {}
	}
	return noteWait(ctx, s, false, key)
}
