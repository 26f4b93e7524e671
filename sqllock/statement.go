package sqllock

import (
	"math"
	"runtime"
	"time"

	"github.com/latchkey-go/latchkey/internal/dialect"
	"github.com/latchkey-go/latchkey/internal/dialect/postgres"
)

// One statement of a connection: it is chosen, sent and completed.

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

// prepare chooses what to send next and takes it out of the queues, under one
// hold of the mutex. A batch carries up to limit keys, and groups.
func (c *connection) prepare(limit int) statementKind {
	t := c.slot.s.table
	t.mu.Lock()
	defer t.mu.Unlock()
	if c.dead.Load() {
		return noStatement
	}
	if c.slot.oldest != 0 || c.round.beat { // there will be a statement
		t.pollAlongLocked()
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
	c.round = round{}
	if !c.prepareBatchLocked(limit, beat) {
		return noStatement
	}
	return exchangeKeys
}

// prepareLocked reports whether there is a statement of this kind to send. The
// kind is not the batch.
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
	case hearBells:
		return c.prepareBellsLocked()
	default:
		return c.prepareRegistryLocked()
	}
}

// send sends what was prepared, and stores the response in the round. table.mu
// is not held, so callers queue for the next statement meanwhile.
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
	case hearBells:
		r.complete, err = c.session.(dialect.Listener).Listen(r.bells)
	case writeRegistry:
		err = c.session.(postgres.Registrar).Register(*c.slot.s.registrar.tables.Load(), r.register)
	default:
		err = c.session.Exchange(&c.batch.statement)
	}
	return err
}

// complete acts on the response to a statement. It reports whether c lives.
func (c *connection) complete(kind statementKind, err error) bool {
	if kind == exchangeKeys {
		switch {
		case err == nil:
			return c.completeBatch()
		case dialect.Survives(err):
			return c.reconcile(fromDialect(err))
		}
		c.loseConnection(lossBy(err))
		return false
	}
	beat := true
	switch kind {
	case drawToken:
		c.completeTokens(err)
	case endProcesses:
		c.completeEnd(err)
		beat = c.completeAside(err)
	case lookAtTable:
		beat = c.completeAside(err)
		c.completeLook(err)
	case checkSecret:
		c.completeSecret(err)
	case hearBells:
		beat = c.completeAside(err)
		c.completeBells(err)
	default:
		c.completeRegistry(err)
	}
	if beat {
		c.round.beat = false
	}
	return !c.dead.Load()
}

// coalesce gives callers time to queue their next requests, for as long as the
// queue grows. So the callers that one statement has answered are in the next.
// It sets no timer. It returns at once where no goroutine is ready to run, and
// gives up where the processor is busy with other work.
//
// It returns how many keys the next statement carries at most. Groups do not
// count: they all go. Where it pays, the limit is half of the queue (see
// halves). From then on half of the callers are always queued when the response
// for the other half comes, and coalesce has nothing to wait for.
func (c *connection) coalesce() (limit int) {
	const (
		all     = math.MaxInt
		timeout = time.Millisecond // thousands of callers take less; a busy processor's turn takes more
	)
	queued := int(c.slot.queued.Load())
	if queued >= fullStatement && c.stats.halves(queued+c.stats.answered) {
		return all
	}
	began, first := now(), queued
	for range 16 { // callers may keep coming
		runtime.Gosched()
		before := queued
		if queued = int(c.slot.queued.Load()); queued == before || now()-began > timeout {
			break
		}
	}
	if came := queued - first; came >= fullStatement {
		c.stats.observe(came, now()-began)
	}
	if queued >= 2*fullStatement && c.stats.halves(queued) {
		return queued / 2
	}
	return all
}
