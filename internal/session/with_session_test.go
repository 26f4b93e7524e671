package session

import (
	"context"
	"testing"
	"testing/synctest"

	"github.com/latchkey-go/latchkey/internal/keytable"
)

// withSession runs test in virtual time with a Session that has a registry, which r
// reads, and a connection. It has no database.
func withSession(t *testing.T, test func(t *testing.T, s *Session, r *ageReader)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		r := &ageReader{}
		o := Defaults()
		o.Suit()
		s := &Session{options: o, registrar: new(registrar), Table: NewTable(keytable.Config{
			Wake: func() {}, NewHold: func() *keytable.Hold { return &keytable.Hold{Holder: untold{}} },
		}, AnswerTimeout, func() error { return ErrNoAnswer })}
		s.ages = newHeldAges(r.read)
		s.ctx, s.cancel = context.WithCancel(t.Context())
		s.slots = []*slot{newSlot(s)}
		s.slots[0].conn = &connection{s: s}
		test(t, s, r)
		s.cancel()
		s.tasks.Wait()
	})
}

// An untold is a holder that is told nothing.
type untold struct{}

func (untold) EndContexts(keytable.End) {}
func (untold) CallHooks(keytable.End)   {}
func (untold) Name() string             { return "" }
