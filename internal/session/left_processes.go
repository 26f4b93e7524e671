package session

import (
	"slices"
	"time"

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

// An ending is the errand that ends such processes: when the connection is new,
// and with each heartbeat until they are gone. There are some only if sessions
// are Terminators.
type ending struct {
	left, there []dialect.Process // when the statement was sent, and after it
	next        time.Duration     // not before, except with a heartbeat; 0: at once
}

func (e *ending) due(c *connection, heartbeat bool) bool {
	l := &c.s.left
	if l.attempts >= maxEndings {
		l.processes = nil
	}
	if len(l.processes) == 0 || !heartbeat && e.next != 0 && Now() < e.next {
		return false
	}
	e.next = Now() + c.s.options.Heartbeat
	e.left = slices.Clone(l.processes)
	l.attempts++
	return true
}

func (e *ending) send(c *connection) (err error) {
	e.there, err = c.session.(dialect.Terminator).Terminate(e.left)
	return err
}

func (e *ending) complete(c *connection, err error) (log func()) {
	if l := &c.s.left; err == nil {
		ended := func(p dialect.Process) bool { return slices.Contains(e.left, p) && !slices.Contains(e.there, p) }
		l.processes, l.attempts = slices.DeleteFunc(l.processes, ended), 0
	}
	return nil
}
