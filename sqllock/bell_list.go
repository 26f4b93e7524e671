package sqllock

import (
	"time"

	"github.com/latchkey-go/latchkey/internal/dialect"
)

// The bells of one connection.

// bells are those that a connection listens to, or should. table.mu protects
// them.
type bells struct {
	wanted  map[dialect.Bell]*bell
	changed bool          // the server does not know all that is wanted
	told    int           // how many the server knows
	useless int           // bells in a row that have brought no key
	swept   time.Duration // when bells were last forgotten
	retryAt time.Duration // none is wanted before that; 0: the server has not refused
	tried   time.Duration // when the server was last told
	misses  int           // times in a row that a mark was taken
}

// A bell is one that is wanted.
type bell struct {
	last  time.Duration // when a key of it was last denied to waiters
	heard bool          // the server has confirmed it
}

// newBells returns no bells, or nil if session or the watch on its socket hears
// none.
func newBells(session dialect.Session, w *watch) *bells {
	if l, ok := session.(dialect.Listener); !ok || w == nil || !l.CanListen() {
		return nil
	}
	return &bells{wanted: make(map[dialect.Bell]*bell), swept: now()}
}

// off reports whether the server has refused to let the connection listen, a
// moment ago.
func (b *bells) off(at time.Duration) bool { return b.retryAt != 0 && at < b.retryAt }

// foundLocked notes that a key which was denied to waiters is granted now.
func (b *bells) foundLocked() {
	if b != nil {
		b.useless = 0
	}
}

// forgetLocked forgets the bells that were not wanted since then.
func (b *bells) forgetLocked(then time.Duration) {
	for number, one := range b.wanted {
		if one.last < then {
			delete(b.wanted, number)
			b.changed = true
		}
	}
}

// marksLocked returns how many locks of the connection stand for bells at most.
func (b *bells) marksLocked() int {
	if b == nil || len(b.wanted)+b.told == 0 {
		return 0
	}
	return 1 + max(len(b.wanted), b.told)
}
