package worker

import (
	"context"
	"database/sql"
	"errors"
	"time"

	"github.com/latchkey-go/latchkey/internal/chaos/history"
	"github.com/latchkey-go/latchkey/sqllock"
)

// Schema creates the tables of fenced writes, in addition to those of
// sqllock.FenceSchema. N counts the writes of a key in the order of their
// commits, since each write keeps the counter's row locked until it commits.
const Schema = `
CREATE TABLE counters (key bigint PRIMARY KEY, n bigint NOT NULL);
CREATE TABLE writes (key bigint, n bigint, lock bigint, number bigint, timeline bigint, lsn bigint, PRIMARY KEY (key, n));
GRANT SELECT, INSERT, UPDATE ON counters, writes, latchkey_fence TO PUBLIC`

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
	err = errors.Join(Store(ctx, tx, w), tx.Commit())
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

// Store stores, as a part of tx, w and the token that the fence has noted for its
// key.
func Store(ctx context.Context, tx *sql.Tx, w history.Write) error {
	var n int64
	err := tx.QueryRowContext(ctx, `INSERT INTO counters (key, n) VALUES ($1, 1)
		ON CONFLICT (key) DO UPDATE SET n = counters.n + 1 RETURNING n`, w.Key).Scan(&n)
	if err != nil {
		return err
	}
	_, err = tx.ExecContext(ctx, `INSERT INTO writes (key, n, lock, number, timeline, lsn)
		SELECT key_id, $2, $3, $4, timeline, lsn FROM latchkey_fence WHERE key_space = 0 AND key_id = $1`,
		w.Key, n, w.Lock, w.Number)
	return err
}
