package sqllock

import (
	"context"
	"time"

	"github.com/latchkey-go/latchkey/internal/dialect"
)

// A tokenRequest is a call that waits for a token of lock in the place of old.
type tokenRequest struct {
	lock *Lock
	old  *dialect.Token
	err  error
	done chan struct{} // closed when there is a token, or err
}

// requestToken waits until lock, which is on c, has a token other than old.
func (c *connection) requestToken(ctx context.Context, lock *Lock, old *dialect.Token) error {
	r := &tokenRequest{lock: lock, old: old, done: make(chan struct{})}
	t := c.slot.s.table
	t.mu.Lock()
	c.tokenRequests = append(c.tokenRequests, r)
	c.slot.signal()
	t.mu.Unlock()
	timer := time.NewTimer(answerTimeout)
	defer timer.Stop()
	select {
	case <-r.done:
		return r.err
	case <-c.gone:
		return ErrLost
	case <-ctx.Done():
		return ended(ctx)
	case <-timer.C:
		return errNoAnswer
	}
}

// prepareTokensLocked takes the requests whose locks need a token and are held. The
// others get their answer.
//
// One token serves them all, in a statement of its own: it is dear, and most locks
// never need one. The token is right for each lock that is held when the statement
// is sent, since to give one back takes a later statement of the same goroutine.
func (c *connection) prepareTokensLocked() bool {
	if len(c.tokenRequests) == 0 {
		return false
	}
	all := c.tokenRequests
	c.tokenRequests = nil
	for _, r := range all {
		if r.lock.state.lock == r.lock && r.lock.drawn() == r.old {
			c.round.tokens = append(c.round.tokens, r)
		} else {
			close(r.done)
		}
	}
	return len(c.round.tokens) > 0
}

func (c *connection) completeTokens(err error) {
	if err != nil && !c.stillHolds(err) {
		return
	}
	c.renew()
	token := c.round.token // the locks keep it; the round is used again
	for _, r := range c.round.tokens {
		if err == nil {
			r.lock.noteToken(r.old, &token)
		} else {
			r.err = txError(true, err)
		}
		close(r.done)
	}
}
