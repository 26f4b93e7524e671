package sqllock

import (
	"slices"
	"time"

	"github.com/latchkey-go/latchkey/internal/dialect"
)

// What a connection still holds after a statement has failed, and the server
// processes that lost connections have left behind.

// reconcile completes a batch that failed on a session that lives. It asks what
// the session holds, because a statement that fails half-way keeps what it had
// taken. It reports whether c lives.
func (c *connection) reconcile(err error) bool {
	keys, heldErr := c.heldKeys()
	if heldErr != nil {
		c.loseConnection(lossBy(heldErr))
		return false
	}
	holds := setOf(keys)
	if !c.accountsFor(holds) {
		c.loseConnection(lossHeld)
		return false
	}
	if c.cannotRelease() {
		c.loseConnection(lossRelease(err))
		return false
	}
	t, b := c.slot.s.table, &c.batch
	t.mu.Lock()
	defer t.mu.Unlock()
	answered := now()
	if !c.renewLocked(answered) {
		return false
	}
	c.answeredCrowdedLocked()
	for _, k := range b.releases {
		if holds[k.dbKey()] {
			c.releaseAgainLocked(k)
		} else {
			c.keyFreedLocked(k)
		}
	}
	wanted := b.singles
	for keys := range b.allGroups {
		wanted = append(wanted, keys...)
	}
	b.abandonEach()
	b.settled = b.mayBring() // from here on c.held counts what it has brought
	for _, k := range wanted {
		if holds[k.dbKey()] {
			c.keyGrantedLocked(k, answered)
		} else {
			c.keyDeniedLocked(k, err)
		}
	}
	c.slot.s.used = answered
	b.clear()
	return true
}

// releaseAgainLocked has the next statement give k back, which the batch did
// not. A caller that waits for that has waited since the batch's oldest at the
// latest, and goes on with what is left of its time. Without such a caller the
// time of those who queue from now on counts.
func (c *connection) releaseAgainLocked(k *keyState) {
	c.slot.s.table.releaseLocked(k)
	if k.reply != nil || k.tried() {
		c.slot.waitSinceLocked(c.batch.oldest)
	}
}

// stillHolds reports whether c lives and holds its locks after err of a
// statement that is not a batch. If not, c is lost.
//
// The text of an error does not decide: an error that ended the session may
// look like an error of the statement.
func (c *connection) stillHolds(err error) bool {
	if !dialect.Survives(err) {
		c.loseConnection(lossBy(err))
		return false
	}
	keys, err := c.heldKeys()
	if err != nil {
		c.loseConnection(lossBy(err))
		return false
	}
	if !c.accountsFor(setOf(keys)) {
		c.loseConnection(lossHeld)
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
	for pause := pollMin; ; pause = min(2*pause, pollAway) {
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

// accountsFor reports whether the session holds every lock on c.
func (c *connection) accountsFor(holds map[dialect.Key]bool) bool {
	t := c.slot.s.table
	t.mu.Lock()
	defer t.mu.Unlock()
	for k := range t.keys.all() {
		if sessionKeyOf(k).conn == c && k.phase != freeing && !holds[k.dbKey()] {
			return false
		}
	}
	return true
}

// cannotRelease counts the batch that has failed, and reports whether too many
// in a row have. A connection that cannot release is of no use.
func (c *connection) cannotRelease() bool {
	const tooMany = 10
	t := c.slot.s.table
	t.mu.Lock()
	defer t.mu.Unlock()
	if len(c.batch.releases) > 0 {
		c.failed++ // to release needs no room: it should not fail
	}
	return c.failed >= tooMany
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

// rememberProcessLocked remembers the server process of c, which is lost. The
// server may not have noticed, and keeps the locks. So the next connection ends
// that process.
func (s *Session) rememberProcessLocked(c *connection) {
	t, ok := c.session.(dialect.Terminator)
	if !ok || t.Process().PID == 0 {
		return
	}
	if c.served { // what failed was in an earlier outage
		s.endFailures = 0
	}
	if s.endFailures >= maxEndFailures {
		return
	}
	if len(s.leftProcesses) >= maxLeft {
		s.leftProcesses = slices.Delete(s.leftProcesses, 0, 1)
	}
	s.leftProcesses = append(s.leftProcesses, t.Process())
}

// prepareEndLocked takes the server processes that lost connections have left
// behind, to end them. Their locks have ended in this process. It does so when
// c is new, and with each heartbeat until they are gone or maxEndFailures is
// reached.
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
	if err != nil { // it is tried again
		there = left
	}
	return there, err
}

// completeEnd keeps the processes that are still there for the next heartbeat,
// unless too many statements to end them have failed.
func (c *connection) completeEnd(err error) {
	s := c.slot.s
	s.table.mu.Lock()
	if err == nil {
		s.endFailures = 0
	} else if s.endFailures++; s.endFailures >= maxEndFailures {
		c.round.left = nil
	}
	s.leftProcesses = append(c.round.left, s.leftProcesses...)
	s.table.mu.Unlock()
}
