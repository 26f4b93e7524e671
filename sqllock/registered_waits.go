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

// waitInfo returns what a registry records of a call that waits with this ctx.
// oneOf says that it is for one of several keys.
func (s *Session) waitInfo(ctx context.Context, oneOf bool) any {
	if !s.session.Registers() {
		return nil
	}
	return heldBy(ctx, s.session, oneOf)
}

// heldBy returns a wait that begins now, with the locks of s that ctx carries.
// A lock of another Session may be in another database, where its key means
// something else. Readers' locks of one key count once.
func heldBy(ctx context.Context, s *session.Session, oneOf bool) *session.Wait {
	w := &session.Wait{Since: session.Now(), Any: oneOf}
	for c := carrier(ctx); c != nil; c = carrier(c.parent) {
		h := &c.lock.hold
		same := func(other *keytable.Hold) bool { return other.ID() == h.ID() }
		if c.lock.home.session == s && h.Ended() == keytable.NotEnded && !slices.ContainsFunc(w.Holding, same) {
			w.Holding = append(w.Holding, h)
		}
	}
	return w
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
	if c == nil || wait <= c.lock.home.session.NoteAfter() {
		return func() {}
	}
	s := c.lock.home.session
	if p := s.ProcessOf(&c.lock.hold); p.PID == 0 || !postgres.IsNeighbourXact(ctx, tx, p) { // 0: behind a pooler
		return func() {}
	}
	return s.Note(heldBy(ctx, s, false), key.id())
}
