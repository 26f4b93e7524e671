package sqllock

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/latchkey-go/latchkey/internal/dialect"
)

// Fencing tokens. The token of a lock is drawn when a caller first needs it, by
// a statement of the connection that holds the lock.

// Token returns the fencing token of the lock: a text that rises from holder to
// holder of a key. Tokens compare as strings do.
//
// A system outside the database stores the greatest token that it has seen, and
// rejects requests with a smaller one. Such a request comes from a holder that
// has lost its lock unnoticed.
//
// The first Token or [Fence] of a lock draws the token, which may take a round
// trip or more: see Fence. Later calls return the same token, with one
// exception. A lock of a lease table outlives a restart of the server, and the
// next Fence gives it a greater token.
//
// Tokens compare within one history of one database system. Two standbys that
// are promoted separately are two histories. Fence tells them apart. The text
// alone does not.
//
// The errors are these:
//   - ErrLost or ErrReleased: the lock is known to be gone.
//   - ErrUnavailable: the lock is nil, or its session does not respond within a
//     second.
//   - The error of ctx, if ctx ends before there is a token.
//   - Another error: the lock has no token. A lock of [Memory], [PerTx] or
//     [OnConn] never has one, and neither has a reader's lock. Or the database
//     rejects the statement that draws it.
func (l *Lock) Token(ctx context.Context) (string, error) {
	token, err := l.token(ctx)
	if err != nil {
		return "", err
	}
	return textOf(*token), nil
}

// textOf returns t as a text. All texts have one width, so they compare as
// tokens do.
func textOf(t dialect.Token) string {
	return fmt.Sprintf("%016x-%016x-%016x", uint64(t.System), uint64(t.Epoch), uint64(t.Number))
}

// The reasons why a lock has no token.
var errNoLock = fmt.Errorf("%w: there is no lock to fence with: the context has none, or the request was let in without one (WithFailOpen)", ErrUnavailable)

var errNoToken = errors.New("sqllock: only the lock of a Session can be fenced" +
	" (work done in the transaction of a PerTx lock needs no fence)")

var errReadersToken = errors.New("sqllock: a reader's lock cannot be fenced: readers do not exclude each other; take the key with TryLock or Lock to write")

// token returns l's token, and draws it if there is none yet.
func (l *Lock) token(ctx context.Context) (*dialect.Token, error) {
	if l == nil {
		return nil, errNoLock
	}
	if err := l.Err(); err != nil {
		return nil, err
	}
	conn, ok := l.life.(*connection)
	if !ok {
		return nil, errNoToken
	}
	if l.shared {
		return nil, errReadersToken
	}
	if token := l.drawn(); token != nil {
		return token, nil
	}
	if token, ok := conn.session.ReservedToken(); ok {
		l.noteToken(nil, &token)
	} else if err := conn.requestToken(ctx, l, nil); err != nil {
		return nil, err
	}
	return l.tokenIfHeld()
}

// drawInstead returns a token that takes the place of old. It is for a lock
// that outlives its server: of that server's next life old says nothing.
func (l *Lock) drawInstead(ctx context.Context, old *dialect.Token) (*dialect.Token, error) {
	if err := l.life.(*connection).requestToken(ctx, l, old); err != nil {
		return nil, err
	}
	return l.tokenIfHeld()
}

// tokenIfHeld returns the token of l, unless l was released or lost meanwhile.
func (l *Lock) tokenIfHeld() (*dialect.Token, error) {
	if err := l.Err(); err != nil {
		return nil, err
	}
	return l.drawn(), nil
}

// drawn is the token of l, nil before the first.
func (l *Lock) drawn() *dialect.Token {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.more == nil {
		return nil
	}
	return l.more.token
}

// noteToken gives l a token in the place of old, which is nil before the first.
// It does nothing if l has another one by now: all transactions of a lock have
// the same.
func (l *Lock) noteToken(old, token *dialect.Token) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if more := l.attachLocked(); more.token == old {
		more.token = token
	}
}

// requestToken waits until lock, which is on c, has a token other than old.
func (c *connection) requestToken(ctx context.Context, lock *Lock, old *dialect.Token) error {
	r := &tokenRequest{lock: lock, old: old, done: make(chan struct{})}
	t := c.slot.s.table
	t.mu.Lock()
	c.tokenRequests = append(c.tokenRequests, r)
	c.slot.signal()
	t.mu.Unlock()
	timer := time.NewTimer(c.slot.s.options.timeout)
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

// prepareTokensLocked takes the requests whose locks need a token and are held.
// The other requests are completed.
//
// One token serves them all, in a statement of its own, because it is dear and
// most locks never need one. It is right for each lock that is held when the
// statement is sent: a release is always a later statement of the same
// goroutine.
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

// completeTokens gives the token to the locks, and wakes the callers.
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
