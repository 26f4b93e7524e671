package session

import (
	"slices"

	"github.com/latchkey-go/latchkey/internal/dialect"
)

// leftProcesses are the server processes that lost connections have left behind.
// The server may not have noticed, and keeps the locks. So the next connection
// ends them.
type leftProcesses struct {
	processes []dialect.Process
	attempts  int // statements in a row, to end them, without a response
}

const (
	// maxLeft bounds the server processes that a Session remembers. The oldest is
	// forgotten.
	maxLeft = 64

	// maxEndings is how many statements in a row, to end them, may fail. Then they
	// are forgotten. The Session may have no right to end them, or the statement
	// itself may cost the connection.
	maxEndings = 10
)

// remember remembers the server process of c, which is lost.
func (l *leftProcesses) remember(c *connection) {
	t, ok := c.session.(dialect.Terminator)
	if !ok || t.Process().PID == 0 {
		return
	}
	if c.served { // what failed was in an earlier outage
		l.attempts = 0
	}
	if l.processes = append(l.processes, t.Process()); len(l.processes) > maxLeft {
		l.processes = slices.Delete(l.processes, 0, 1)
	}
}

// endLeft is the errand that ends such processes: when the connection is new, and
// with each heartbeat until they are gone. There are some only if sessions are
// Terminators.
func (c *connection) endLeft(heartbeat bool) *errand {
	l := &c.s.left
	if l.attempts >= maxEndings {
		l.processes = nil
	}
	if len(l.processes) == 0 || !heartbeat {
		return nil
	}
	l.attempts++
	left, there := slices.Clone(l.processes), []dialect.Process(nil)
	return &errand{
		send: func() (err error) {
			there, err = c.session.(dialect.Terminator).Terminate(left)
			return err
		},
		complete: func(err error) (log func()) {
			if err == nil {
				ended := func(p dialect.Process) bool { return slices.Contains(left, p) && !slices.Contains(there, p) }
				l.processes, l.attempts = slices.DeleteFunc(l.processes, ended), 0
			}
			return nil
		},
	}
}
