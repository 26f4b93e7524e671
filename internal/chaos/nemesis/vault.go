package nemesis

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"time"

	"github.com/latchkey-go/latchkey/internal/chaos/check"
	"github.com/latchkey-go/latchkey/internal/chaos/history"
	"github.com/latchkey-go/latchkey/internal/chaos/worker"
	"github.com/latchkey-go/latchkey/sqllock"
)

// A vault is the data at a place, behind the fence.
type vault struct{ db *sql.DB }

// writePatience bounds a write.
const writePatience = 5 * time.Second

func openVault(driver, dsn string) (*vault, error) {
	db, err := sql.Open(driver, dsn)
	if err != nil {
		return nil, err
	}
	db.SetMaxIdleConns(0) // servers end at these places
	return &vault{db}, nil
}

// furnish makes the tables.
func (v *vault) furnish(ctx context.Context) error {
	for _, statement := range []string{sqllock.FenceSchema, worker.Schema} {
		if _, err := v.db.ExecContext(ctx, statement); err != nil {
			return fmt.Errorf("schema: %w", err)
		}
	}
	return nil
}

// A refusal is the fence's: its transaction was spoiled, as it must be.
type refusal struct{ reason error }

func (r refusal) Error() string { return "a write was refused: " + r.reason.Error() }
func (r refusal) Unwrap() error { return r.reason }

// write makes a fenced write in the name of lock, which has this number. It goes
// on when the fence has refused, as a careless caller would: that the database
// does not let it is part of a refusal.
func (v *vault) write(ctx context.Context, lock *sqllock.Lock, number int64) error {
	ctx, cancel := context.WithTimeout(ctx, writePatience)
	defer cancel()
	tx, err := v.db.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	defer tx.Rollback()
	fenced := sqllock.Fence(ctx, tx, lock)
	written := writeRow(ctx, tx, lock.Key(), number)
	committed := tx.Commit()
	if fenced == nil {
		return errors.Join(written, committed)
	}
	if written == nil || committed == nil {
		return fmt.Errorf("a transaction went on although the fence refused it: %w", fenced)
	}
	return refusal{fenced}
}

// mustRefuse is nil if err, of a write by a stale holder, is a refusal because of
// that.
func mustRefuse(err error) error {
	stale := errors.Is(err, sqllock.ErrFenced) || errors.Is(err, sqllock.ErrLost)
	switch {
	case err == nil:
		return errors.New("a stale holder's write was stored")
	case !errors.As(err, new(refusal)) || !stale:
		return fmt.Errorf("a stale holder's write failed, and not by the fence: %w", err)
	}
	return nil
}

// writeRow stores number and the token that the fence has noted for key, in the
// order of commits: the counter's row stays locked until then.
func writeRow(ctx context.Context, tx *sql.Tx, key sqllock.Key, number int64) error {
	var n int64
	err := tx.QueryRowContext(ctx, `INSERT INTO counters (key, n) VALUES ($1, 1)
		ON CONFLICT (key) DO UPDATE SET n = counters.n + 1 RETURNING n`, key.Int64()).Scan(&n)
	if err != nil {
		return err
	}
	_, err = tx.ExecContext(ctx, `INSERT INTO writes (key, n, lock, timeline, lsn)
		SELECT key_id, $2, $3, timeline, lsn FROM latchkey_fence WHERE key_space = 0 AND key_id = $1`, key.Int64(), n, number)
	return err
}

// noted is write for a lock in a diary.
func (v *vault) noted(ctx context.Context, k *kept) error {
	w := history.Write{Process: k.hold.Process, Key: k.hold.Key, Lock: k.hold.Lock, Begin: history.Now()}
	err := v.write(ctx, k.Lock, k.hold.Lock)
	w.End, w.Result = history.Now(), resultOf(err)
	k.diary.note(history.Event{Write: &w})
	return err
}

func resultOf(err error) history.Result {
	switch {
	case err == nil:
		return history.OK
	case errors.Is(err, sqllock.ErrFenced):
		return history.Fenced
	case errors.Is(err, sqllock.ErrLost):
		return history.Lost
	}
	return history.Failed
}

// stored is all fenced writes, but for their order.
func (v *vault) stored(ctx context.Context) (all []check.Stored, err error) {
	rows, err := v.db.QueryContext(ctx, "SELECT key, n, timeline, lsn, lock FROM writes")
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	for rows.Next() {
		var s check.Stored
		if err := rows.Scan(&s.Key, &s.N, &s.Timeline, &s.LSN, &s.Lock); err != nil {
			return nil, err
		}
		all = append(all, s)
	}
	return all, rows.Err()
}
