package sqllock

import (
	"context"
	"errors"
	"fmt"

	"github.com/latchkey-go/latchkey/internal/dialect"
	"github.com/latchkey-go/latchkey/internal/keytable"
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
// exception. A lock of a lease table in PostgreSQL outlives a restart of the
// server, and the next Fence gives it a greater token.
//
// Tokens compare within one history of one database system. Two standbys that
// are promoted separately are two histories. Fence tells them apart. The text
// alone does not.
//
// The errors are these:
//   - ErrLost or ErrReleased: the lock is known to be gone.
//   - ErrUnavailable: the lock is nil, or the database does not respond in
//     time, or accepts no connection.
//   - The error of ctx, if ctx ends before there is a token.
//   - Another error: the lock has no token. A lock of [Memory], [PerTx] or
//     [OnConn] never has one, and neither has a reader's lock. Or the database
//     rejects the statement that draws it, or the pool lends no connection for it.
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
	switch {
	case l.home.session == nil:
		return nil, errNoToken
	case l.hold.Mode() == keytable.Shared:
		return nil, errReadersToken
	}
	a := l.attached()
	drawn := a.drawn
	a.mu.Unlock()
	if drawn != nil {
		return drawn, nil
	}
	return l.draw(ctx, nil)
}

// draw draws a token that takes the place of old, which is nil before the first.
// A lease table's lock outlives its server, and old says nothing about the
// server's next life. If l has another token by then, that one counts, because
// all transactions of a lock have the same.
func (l *Lock) draw(ctx context.Context, old *dialect.Token) (*dialect.Token, error) {
	token, err := l.home.session.Token(ctx, &l.hold, old != nil)
	if err != nil {
		return nil, callError(ctx, err)
	}
	if err := l.Err(); err != nil { // released or lost meanwhile
		return nil, err
	}
	a := l.attached()
	defer a.mu.Unlock()
	if a.drawn == old {
		a.drawn = token
	}
	return a.drawn, nil
}
