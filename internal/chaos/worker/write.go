package worker

import (
	"context"
	"errors"
	"time"

	"github.com/latchkey-go/latchkey/internal/chaos/history"
	"github.com/latchkey-go/latchkey/sqllock"
)

// WriteTimeout bounds a write.
const WriteTimeout = 2 * time.Second

// write makes a fenced write in the name of h's lock and writes down how it
// ended.
func (c *caller) write(h *ObservedLock) {
	w := history.Write{Process: h.Hold.Process, Key: h.Hold.Key, Lock: h.Hold.Lock, Number: c.w.number(), Begin: history.Now()}
	ctx, cancel := context.WithTimeout(context.Background(), WriteTimeout)
	defer cancel()
	w.Result = c.commit(ctx, h.Lock, w)
	w.End = history.Now()
	switch w.Result {
	case history.OK:
		c.w.counts.written.Add(1)
	case history.Fenced:
		c.w.counts.fenced.Add(1)
	}
	c.w.note(history.Event{Write: &w})
}

// commit goes on after the fence has refused, as a careless caller would. The
// database must not let it.
func (c *caller) commit(ctx context.Context, lock *sqllock.Lock, w history.Write) history.Result {
	tx, err := c.w.direct.BeginTx(ctx, nil)
	if err != nil {
		return history.Failed
	}
	defer tx.Rollback()
	fence := sqllock.Fence(ctx, tx, lock)
	err = errors.Join(c.w.store(ctx, tx, w), tx.Commit())
	switch {
	case errors.Is(fence, sqllock.ErrFenced):
		return history.Fenced
	case errors.Is(fence, sqllock.ErrLost), errors.Is(fence, sqllock.ErrReleased):
		return history.Lost
	case fence != nil, err != nil:
		return history.Failed
	}
	return history.OK
}
