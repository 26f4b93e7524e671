package sqllock

import (
	"context"
	"errors"
	"fmt"

	"github.com/latchkey-go/latchkey/internal/dialect"
)

// Token returns the fencing token of the lock. Of two holders of a key the
// later has the greater token, as strings compare. A system outside the
// database stores the greatest token that it has seen and rejects a smaller
// one. That one comes from a holder that has lost its lock unnoticed.
//
// The first Token or [Fence] of a lock draws it, which may take a round trip or
// more: see Fence. Every later call returns the same token, with one exception.
// A lock of a lease table outlives a restart of the server, and the next Fence
// then gives it a token that is greater.
//
// Tokens compare within one history of one database system. Two standbys that
// are promoted separately are two histories. Fence tells them apart; the text
// alone does not.
//
// The errors are these:
//   - ErrLost or ErrReleased: the lock is known to be gone.
//   - ErrUnavailable: the lock is nil, or its session does not respond within a
//     second.
//   - ctx's error, if ctx ends before there is a token.
//   - Another error: the lock has no token. A lock of [Memory], [PerTx] or
//     [OnConn] never has one, and no reader's lock has. Or the database rejects
//     the statement that draws it.
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
	if l.lease == nil {
		return nil, errNoToken
	}
	if l.shared {
		return nil, errReadersToken
	}
	if token := l.drawn(); token != nil {
		return token, nil
	}
	if token, ok := l.lease.session.Drawn(); ok {
		l.noteToken(nil, &token)
	} else if err := l.lease.draw(ctx, l, nil); err != nil {
		return nil, err
	}
	return l.tokenIfHeld()
}

// drawInstead returns a token that takes the place of old. It is for a lock
// that outlives its server: of that server's next life old says nothing.
func (l *Lock) drawInstead(ctx context.Context, old *dialect.Token) (*dialect.Token, error) {
	if err := l.lease.draw(ctx, l, old); err != nil {
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
