package session

import (
	"slices"
	"time"

	"github.com/latchkey-go/latchkey/internal/dialect"
	"github.com/latchkey-go/latchkey/internal/keytable"
)

// reconcile completes a batch that failed on a session that lives. It asks what
// the session holds, because a statement that fails half-way keeps what it had
// taken. It reports whether c lives.
func (c *connection) reconcile(err error) bool {
	keys, heldErr := c.heldKeys()
	if heldErr != nil {
		c.lose(c.lossBy(heldErr))
		return false
	}
	holds := setOf(keys)
	s := c.s
	s.mu.Lock()
	why, ok := lossHeld, c.accountsFor(holds)
	if ok && len(c.statement.Release) > 0 { // to release needs no room: it should not fail
		const tooMany = 10
		c.failed++
		why, ok = lossRelease(err), c.failed < tooMany
	}
	if !ok {
		s.mu.Unlock()
		c.lose(why)
		return false
	}
	answered := Now()
	if !c.renew(answered) {
		s.mu.Unlock()
		c.lose(lossLease)
		return false
	}
	c.brings = 0
	s.used = answered
	s.Table.Reconcile(&c.owner, &c.batch, answered, func(id keytable.ID, m keytable.Mode) bool { return holds[dbKey(id, m)] }, err)
	s.passOn(c)
	s.mu.Unlock()
	s.poller.Look()
	return true
}

// stillHolds reports whether c lives and holds its locks after err of a
// statement that is not a batch. If not, c is lost.
//
// The text of an error does not decide: an error that ended the session may
// look like an error of the statement.
func (c *connection) stillHolds(err error) bool {
	if !dialect.Survives(err) {
		c.lose(c.lossBy(err))
		return false
	}
	keys, err := c.heldKeys()
	if err != nil {
		c.lose(c.lossBy(err))
		return false
	}
	if !c.accountsFor(setOf(keys)) {
		c.lose(lossHeld)
		return false
	}
	return true
}

// setOf returns keys as a set.
func setOf(keys []dialect.Key) map[dialect.Key]bool {
	set := make(map[dialect.Key]bool, len(keys))
	for _, k := range keys {
		set[k] = true
	}
	return set
}

// heldKeys returns what the session holds. The cause of the failure may make
// this statement fail too, for a moment. So it is repeated while the lease
// lasts.
func (c *connection) heldKeys() ([]dialect.Key, error) {
	const shortest, longest = 2 * time.Millisecond, 250 * time.Millisecond
	for pause := shortest; ; pause = min(2*pause, longest) {
		keys, err := c.session.Held()
		if err == nil || !dialect.Survives(err) {
			return keys, err
		}
		timer := time.NewTimer(pause)
		select {
		case <-timer.C:
		case <-c.gone:
			timer.Stop()
			return nil, err
		}
	}
}

// accountsFor reports whether the session holds every lock on c that no
// statement has given back.
func (c *connection) accountsFor(holds map[dialect.Key]bool) bool {
	ok := true
	c.s.Table.Each(&c.owner, func(v keytable.View) {
		ok = ok && (!v.Settled || holds[dbKey(v.ID, v.Mode)])
	})
	return ok
}

// leftProcesses are the server processes that lost connections have left behind.
// The server may not have noticed, and keeps the locks. So the next connection
// ends them.
type leftProcesses struct {
	processes []dialect.Process
	failures  int // statements in a row, to end them, that failed
}

const (
	// maxLeft bounds the server processes that a Session remembers. The oldest is
	// forgotten.
	maxLeft = 64

	// maxEndFailures is how many statements in a row, to end them, may fail. Then
	// they are forgotten. The Session may have no right to end them, or the
	// statement itself may cost the connection.
	maxEndFailures = 10
)

// remember remembers the server process of c, which is lost.
func (l *leftProcesses) remember(c *connection) {
	t, ok := c.session.(dialect.Terminator)
	if !ok || t.Process().PID == 0 {
		return
	}
	if c.served { // what failed was in an earlier outage
		l.failures = 0
	}
	if l.failures >= maxEndFailures {
		return
	}
	if len(l.processes) >= maxLeft {
		l.processes = slices.Delete(l.processes, 0, 1)
	}
	l.processes = append(l.processes, t.Process())
}

// An ending is the errand that ends such processes: when the connection is new,
// and with each heartbeat until they are gone.
type ending struct {
	processes []dialect.Process // to end; then those that are still there
	last      time.Duration
}

func (e *ending) due(c *connection, heartbeat, _ bool) bool {
	l := &c.s.left
	if len(l.processes) == 0 || e.last != 0 && !heartbeat && Now()-e.last < c.s.options.Heartbeat {
		return false
	}
	e.last = Now()
	e.processes, l.processes = l.processes, nil
	return true
}

func (e *ending) send(c *connection) error {
	there, err := c.session.(dialect.Terminator).Terminate(e.processes)
	if err == nil { // else it is tried again
		e.processes = there
	}
	return err
}

func (e *ending) complete(c *connection, err error, beat bool) bool {
	l := &c.s.left
	c.s.mu.Lock()
	if err == nil {
		l.failures = 0
	} else if l.failures++; l.failures >= maxEndFailures {
		e.processes = nil
	}
	l.processes = append(e.processes, l.processes...)
	c.s.mu.Unlock()
	return c.completeAside(err, beat)
}
