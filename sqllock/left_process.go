package sqllock

import (
	"slices"

	"github.com/latchkey-go/latchkey/internal/dialect"
)

// maxLeft bounds the server processes that a Session remembers.
const maxLeft = 64

// rememberProcessLocked remembers the server process of l, which is lost: the server may
// not know it, and keep the locks. This Session's next connection ends it.
func (s *Session) rememberProcessLocked(c *connection) {
	t, ok := c.session.(dialect.Terminator)
	if !ok || t.Process().PID == 0 {
		return
	}
	if len(s.leftProcesses) >= maxLeft {
		s.leftProcesses = slices.Delete(s.leftProcesses, 0, 1)
	}
	s.leftProcesses = append(s.leftProcesses, t.Process())
}

// endLeft ends the server processes that lost connections have left behind, when
// l is new, and again with each heartbeat until they are gone. Their locks
// have ended in this process. It reports whether it sent a heartbeat with that.
func (c *connection) endLeft() bool {
	t, ok := c.session.(dialect.Terminator)
	s := c.slot.s
	if !ok {
		return false
	}
	s.table.mu.Lock()
	left := s.leftProcesses
	if c.dead.Load() || len(left) == 0 {
		s.table.mu.Unlock()
		return false
	}
	s.leftProcesses = nil
	c.sendingLocked(c.slot.oldest)
	s.table.mu.Unlock()

	c.watch.expect()
	there, err := t.Terminate(left)
	c.watch.answered()
	if err != nil && !survived(err) { // the next connection tries again
		there = left
	}
	s.table.mu.Lock()
	s.leftProcesses = append(there, s.leftProcesses...)
	s.table.mu.Unlock()
	return c.completeAside(err)
}

// completeAside takes in the outcome of a statement that asks for no lock and gives none
// back, and reports whether it was a heartbeat too.
//
// If the server has rejected it, the locks are as they were. But it proves
// nothing, so the deadline stays, and a heartbeat is still due.
func (c *connection) completeAside(err error) (beat bool) {
	if err != nil && !survived(err) {
		c.loseConnection(err.Error())
		return true
	}
	c.slot.s.table.mu.Lock()
	defer c.slot.s.table.mu.Unlock()
	if err != nil {
		c.batch.underWay = false
		return false
	}
	c.answeredLocked(now())
	return true
}
