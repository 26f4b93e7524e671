package session

import (
	"context"
	"fmt"
	"time"

	"github.com/latchkey-go/latchkey/internal/dialect"
	"github.com/latchkey-go/latchkey/internal/keytable"
)

// A drawing is the errand that draws a token, when a caller first needs it: it is
// dear, and most locks never need one. One token serves all calls that came
// before the statement was sent. It is right for each lock that is still held
// after it.
//
// Invariant: the goroutine of the connection alone writes token and err, and only
// before it closes done. A caller who has left reads nothing.
type drawing struct {
	token dialect.Token
	err   error
	done  chan struct{}
}

// Token returns a fencing token for h, a hold of s, drawn from now on. If again
// is false, it may be one that the database has reserved before. The caller must
// see after that that h has not ended.
func (s *Session) Token(ctx context.Context, h *keytable.Hold, again bool) (*dialect.Token, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	c := h.Owner().Life.(*connection)
	if !again {
		if token, ok := c.session.ReservedToken(); ok {
			return &token, nil
		}
	}
	s.mu.Lock()
	if c.drawing == nil {
		c.drawing = &drawing{done: make(chan struct{})}
	}
	d := c.drawing
	s.mu.Unlock()
	signal(c.slot.wake)
	select {
	case <-d.done:
		switch {
		case dialect.IsAway(d.err):
			return nil, FromDialect(d.err)
		case d.err != nil:
			return nil, fmt.Errorf("sqllock: %w", d.err)
		}
		return &d.token, nil
	case <-c.gone:
		return nil, keytable.ErrLost
	case <-ctx.Done():
		return nil, ctx.Err()
	case <-time.After(s.options.timeout):
		return nil, ErrNoAnswer
	}
}

// drawToken is the errand.
func (c *connection) drawToken(bool) *errand {
	d := c.drawing
	if d == nil {
		return nil
	}
	c.drawing = nil
	return &errand{
		send: func() error {
			d.token, d.err = c.session.Token()
			return d.err
		},
		complete: func(error) (log func()) {
			close(d.done)
			return nil
		},
	}
}
