package sqllock

import (
	"slices"

	"github.com/latchkey-go/latchkey/internal/dialect"
)

// maxLeft bounds the server processes that a Session remembers.
const maxLeft = 64

// leaveLocked remembers the server process of l, which is lost: the server may
// not know it, and keep the locks. This Session's next connection ends it.
func (s *Session) leaveLocked(l *lease) {
	t, ok := l.session.(dialect.Terminator)
	if !ok || t.Process().PID == 0 {
		return
	}
	if len(s.left) >= maxLeft {
		s.left = slices.Delete(s.left, 0, 1)
	}
	s.left = append(s.left, t.Process())
}

// endLeft ends the server processes that lost connections have left behind, when
// l is new, and again with each heartbeat until they are gone. Their locks
// have ended in this process. It reports whether it sent anything.
func (l *lease) endLeft() bool {
	t, ok := l.session.(dialect.Terminator)
	s := l.backend.s
	if !ok {
		return false
	}
	s.table.mu.Lock()
	left := s.left
	if l.dead.Load() || len(left) == 0 {
		s.table.mu.Unlock()
		return false
	}
	s.left = nil
	l.sendingLocked(l.backend.oldest)
	s.table.mu.Unlock()

	l.watch.expect()
	there, err := t.Terminate(left)
	l.watch.answered()
	if err != nil && !survived(err) { // the next connection tries again
		there = left
	}
	s.table.mu.Lock()
	s.left = append(there, s.left...)
	s.table.mu.Unlock()
	if err != nil && !l.bears(err) {
		return true
	}
	s.table.mu.Lock()
	l.answeredLocked(now())
	s.table.mu.Unlock()
	return true
}
