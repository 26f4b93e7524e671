package sqllock

import (
	"github.com/latchkey-go/latchkey/internal/dialect"
	"github.com/latchkey-go/latchkey/internal/dialect/postgres"
)

// A statementKind is what a statement is for. The kinds are in the order in which
// a round comes to them.
type statementKind uint8

const (
	drawToken     statementKind = iota // a fencing token
	endProcesses                       // ends server processes that lost connections have left behind
	lookAtTable                        // how full the server's lock table is
	checkSecret                        // makes the check of a key secret
	writeRegistry                      // what is held and waited for
	exchangeKeys                       // the batch: takes keys and gives them back, or is just a heartbeat
	noStatement
)

// A round is one pass over the kinds of statements. A connection sends at most one
// of each kind in a round, so that none keeps the others from their turn.
type round struct {
	next statementKind // the kind to come to next
	due  bool          // a heartbeat was due when the round began
	beat bool          // one is still due: none of its statements has been one
	tend bool          // what is due once a heartbeat is due in this round

	// What the statement under way carries, by its kind, and its answers.
	tokens   []*tokenRequest
	token    dialect.Token
	left     []dialect.Process // to end; then those that are still there
	asked    int               // locks held or requested when the table was looked at
	table    dialect.LockTable
	register *postgres.Register

	wanted  secretCheck // to use
	dropped secretCheck // to drop before that; zero: none
	refused bool        // another session uses the namespace with another secret
}

func beginRound(due bool) round { return round{due: due, beat: due} }

// exchange sends one statement, if there is something to send or a heartbeat is
// due. It reports whether it did, and c lives.
func (c *connection) exchange() bool {
	kind := c.prepare(c.coalesce())
	if kind == noStatement {
		return false
	}
	c.watch.expect()
	err := c.send(kind)
	c.watch.answered()
	return c.complete(kind, err)
}

// prepare chooses what to send next and takes it out of the queues, in one hold of
// the mutex. A batch carries up to limit keys, and groups.
func (c *connection) prepare(limit int) statementKind {
	t := c.slot.s.table
	t.mu.Lock()
	defer t.mu.Unlock()
	if c.dead.Load() {
		return noStatement
	}
	for c.round.next < exchangeKeys {
		kind := c.round.next
		c.round.next++
		if c.prepareLocked(kind) {
			c.sendingLocked(c.slot.oldest) // callers who have queued wait for this statement, too
			return kind
		}
	}
	beat := c.round.beat
	c.round = beginRound(false)
	if !c.prepareBatchLocked(limit, beat) {
		return noStatement
	}
	return exchangeKeys
}

// prepareLocked reports whether there is a statement of this kind, which is not
// the batch, to send.
func (c *connection) prepareLocked(kind statementKind) bool {
	switch kind {
	case drawToken:
		return c.prepareTokensLocked()
	case endProcesses:
		return c.prepareEndLocked()
	case lookAtTable:
		return c.prepareLookLocked()
	case checkSecret:
		return c.prepareSecretLocked()
	default:
		return c.prepareRegistryLocked()
	}
}

// send sends what was prepared and stores the answers.
func (c *connection) send(kind statementKind) (err error) {
	r := &c.round
	switch kind {
	case drawToken:
		r.token, err = c.session.Token()
	case endProcesses:
		r.left, err = c.endLeft(r.left)
	case lookAtTable:
		r.table, err = c.session.(dialect.Surveyor).LockTable()
	case checkSecret:
		r.refused, err = c.sendSecret()
	case writeRegistry:
		err = c.session.(postgres.Registrar).Register(*c.slot.s.registrar.tables.Load(), r.register)
	default:
		err = c.session.Exchange(&c.batch.statement)
	}
	return err
}

// complete takes in the answers of a statement. It reports whether c lives.
func (c *connection) complete(kind statementKind, err error) bool {
	if kind == exchangeKeys {
		switch {
		case err == nil:
			return c.completeBatch()
		case survived(err):
			return c.reconcile(fromDialect(err))
		}
		c.loseConnection(err.Error())
		return false
	}
	beat := true
	switch kind {
	case drawToken:
		c.completeTokens(err)
	case endProcesses:
		beat = c.completeEnd(err)
	case lookAtTable:
		beat = c.completeLook(err)
	case checkSecret:
		c.completeSecret(err)
	default:
		c.completeRegistry(err)
	}
	if beat {
		c.round.beat = false
	}
	return !c.dead.Load()
}

// completeAside takes in the outcome of a statement that changes no lock, and
// reports whether it was a heartbeat too.
//
// If the server has rejected it, the locks are as they were. But that proves
// nothing, so the deadline stays, and a heartbeat is still due.
func (c *connection) completeAside(err error) (beat bool) {
	if err != nil && !survived(err) {
		c.loseConnection(err.Error())
		return true
	}
	s := c.slot.s
	s.table.mu.Lock()
	defer s.table.mu.Unlock()
	if err != nil {
		c.batch.underWay = false
		return false
	}
	if c.round.due && c.round.beat {
		s.counters.exchanges++
	}
	c.renewLocked(now())
	return true
}
