package session

import (
	"time"

	"github.com/latchkey-go/latchkey/internal/dialect"
	"github.com/latchkey-go/latchkey/internal/keytable"
)

// maxFailed is how many batches in a row may fail to give locks back.
const maxFailed = 10

// reconcile completes a batch that failed, if the session lives. It asks what
// the session holds, because a statement that fails half-way keeps what it had
// taken. It reports whether c lives.
func (c *connection) reconcile(err error) bool {
	holds, ok := c.heldAfter(err)
	if !ok {
		return false
	}
	err = FromDialect(err)
	if len(c.statement.Release) > 0 { // to release needs no room: it should not fail
		if c.failed++; c.failed >= maxFailed {
			c.lose(loss{causeConnection, "locks could not be given back, again and again: " + err.Error()})
			return false
		}
	}
	return c.answered(c.statement.Keys(), func() {
		c.brings = 0
		c.s.Table.Reconcile(&c.owner, &c.batch, Now(), func(id keytable.ID, m keytable.Mode) bool { return holds[DBKey(id, m)] }, err)
		c.s.passOn(c)
	})
}

// heldAfter returns what the session holds after err of a statement. If the
// session is gone, or does not hold every lock on c that no statement has given
// back, c is lost, and ok is false.
//
// The text of an error does not decide: an error that ended the session may
// look like an error of the statement.
func (c *connection) heldAfter(err error) (holds map[dialect.Key]bool, ok bool) {
	var keys []dialect.Key
	if dialect.Survives(err) {
		keys, err = c.heldKeys()
	}
	if err != nil {
		c.lose(c.lossBy(err))
		return nil, false
	}
	holds, ok = make(map[dialect.Key]bool, len(keys)), true
	for _, k := range keys {
		holds[k] = true
	}
	c.s.Table.Each(&c.owner, func(v keytable.View) {
		ok = ok && (!v.Settled || holds[DBKey(v.ID, v.Mode)])
	})
	if !ok {
		c.lose(lossHeld)
	}
	return holds, ok
}

// heldKeys returns what the session holds. The cause of the failure may make
// this statement fail too, for a moment. So it is repeated while the lease
// lasts.
func (c *connection) heldKeys() ([]dialect.Key, error) {
	const shortest, longest = 2 * time.Millisecond, 250 * time.Millisecond
	for pause := shortest; ; pause = min(2*pause, longest) {
		sent, sentBoot := Now(), c.s.options.bootTime()
		keys, err := c.session.Held()
		if err == nil {
			c.s.mu.Lock()
			c.sent, c.sentBoot = sent, sentBoot // this is the statement that was answered
			c.s.mu.Unlock()
		}
		if !dialect.Survives(err) {
			return keys, err
		}
		select {
		case <-time.After(pause):
		case <-c.gone:
			return nil, err
		}
	}
}
