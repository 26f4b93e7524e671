package sqllock

import (
	"slices"

	"github.com/latchkey-go/latchkey/internal/dialect"
)

// maxLeft bounds the server processes that a Session remembers.
const maxLeft = 64

// rememberProcessLocked remembers the server process of c, which is lost. The
// server may not know of the loss, and keep the locks. The Session's next
// connection ends that process.
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

// prepareEndLocked takes the server processes that lost connections have left
// behind, to end them. It does so when c is new, and again with each heartbeat
// until they are gone. Their locks have ended in this process.
//
// It also begins what is due once a heartbeat, and before the first batch.
func (c *connection) prepareEndLocked() bool {
	r, s, every := &c.round, c.slot.s, c.slot.s.options.heartbeat
	r.tend = c.tended == 0 || (c.needsLook || r.due || c.batch.sent-c.tended >= every) && now()-c.tended >= every
	if !r.tend {
		return false
	}
	c.tended = now()
	if _, ok := c.session.(dialect.Terminator); !ok || len(s.leftProcesses) == 0 {
		return false
	}
	r.left, s.leftProcesses = s.leftProcesses, nil
	return true
}

// endLeft ends the processes, and returns those that are still there.
func (c *connection) endLeft(left []dialect.Process) ([]dialect.Process, error) {
	there, err := c.session.(dialect.Terminator).Terminate(left)
	if err != nil && !survived(err) { // the next connection tries again
		there = left
	}
	return there, err
}

func (c *connection) completeEnd(err error) (beat bool) {
	s := c.slot.s
	s.table.mu.Lock()
	s.leftProcesses = append(c.round.left, s.leftProcesses...)
	s.table.mu.Unlock()
	return c.completeAside(err)
}
