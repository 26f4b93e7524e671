package session

import (
	"context"
	"fmt"
	"time"

	"github.com/latchkey-go/latchkey/internal/dialect"
	"github.com/latchkey-go/latchkey/internal/keytable"
)

// A tokenRequest is a call that waits for the token of a lock.
//
// Invariant: the goroutine of the connection alone writes token and err, and only
// before it closes done. A caller who has left reads nothing.
type tokenRequest struct {
	hold  *keytable.Hold
	token *dialect.Token
	err   error
	done  chan struct{}
}

// Token returns a fencing token for h, a hold of s, drawn from now on. If again
// is false, it may be one that the database has reserved before.
func (s *Session) Token(ctx context.Context, h *keytable.Hold, again bool) (*dialect.Token, error) {
	c := h.Owner().Life.(*connection)
	if !again {
		if token, ok := c.session.ReservedToken(); ok {
			return &token, nil
		}
	}
	r := &tokenRequest{hold: h, done: make(chan struct{})}
	s.mu.Lock()
	c.tokens.requests = append(c.tokens.requests, r)
	s.mu.Unlock()
	signal(c.slot.wake)
	timer := time.NewTimer(s.options.timeout)
	defer timer.Stop()
	select {
	case <-r.done:
		return r.token, r.err
	case <-c.gone:
		return nil, keytable.ErrLost
	case <-ctx.Done():
		return nil, ctx.Err()
	case <-timer.C:
		return nil, ErrNoAnswer
	}
}

// tokens is the errand that draws a token, when a caller first needs it: it is
// dear, and most locks never need one. One token serves all requests. It is right
// for each lock that is held when the statement is sent: a release is always a
// later statement of the same goroutine.
type tokens struct {
	requests []*tokenRequest // protected by Session.mu
	sent     []*tokenRequest
	token    dialect.Token
}

func (e *tokens) due(c *connection, _ bool) bool {
	for _, r := range e.requests {
		if c.s.Table.Holds(r.hold) {
			e.sent = append(e.sent, r)
		} else {
			r.err = keytable.ErrLost
			close(r.done)
		}
	}
	e.requests = nil
	return len(e.sent) > 0
}

func (e *tokens) send(c *connection) (err error) {
	e.token, err = c.session.Token()
	return err
}

func (e *tokens) complete(_ *connection, err error) (log func()) {
	token := e.token // the locks keep it; e is used again
	for _, r := range e.sent {
		if r.token = &token; err != nil {
			r.token, r.err = nil, fmt.Errorf("sqllock: %w", err)
		}
		close(r.done)
	}
	e.sent = nil
	return nil
}
