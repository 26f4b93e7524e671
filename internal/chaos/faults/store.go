package faults

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

// A store is the data of one server, behind the fence.
type store struct{ db *sql.DB }

// writeTimeout bounds a write. The server may just have started.
const writeTimeout = 2 * worker.WriteTimeout

func openStore(driver, dsn string) (*store, error) {
	db, err := sql.Open(driver, dsn)
	if err != nil {
		return nil, err
	}
	db.SetMaxIdleConns(0) // servers end at these places
	return &store{db}, nil
}

// createTables creates the tables of fenced writes.
func (v *store) createTables(ctx context.Context) error {
	for _, statement := range append(sqllock.FenceSchema(sqllock.PostgreSQL), worker.Schema) {
		if _, err := v.db.ExecContext(ctx, statement); err != nil {
			return fmt.Errorf("schema: %w", err)
		}
	}
	return nil
}

// clock returns the time by the server's clock.
func (v *store) clock(ctx context.Context) (at time.Time, err error) {
	err = v.db.QueryRowContext(ctx, "SELECT clock_timestamp()").Scan(&at)
	return at, err
}

// A refusal is an error of the fence whose transaction could not commit either.
type refusal struct{ reason error }

func (r refusal) Error() string { return "a write was refused: " + r.reason.Error() }
func (r refusal) Unwrap() error { return r.reason }

// write makes a fenced write with this number, which stands for its lock too.
func (v *store) write(ctx context.Context, lock *sqllock.Lock, number int64) error {
	return v.commit(ctx, lock, history.Write{Key: lock.Key().Int64(), Lock: number, Number: number})
}

// commit makes the write w behind the fence of lock. After the fence has
// refused it goes on, as a careless caller would. The database must not let it.
func (v *store) commit(ctx context.Context, lock *sqllock.Lock, w history.Write) error {
	ctx, cancel := context.WithTimeout(ctx, writeTimeout)
	defer cancel()
	tx, err := v.db.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	defer tx.Rollback()
	fenced := sqllock.Fence(ctx, tx, lock)
	written := worker.Store(ctx, tx, w)
	committed := tx.Commit()
	if fenced == nil {
		return errors.Join(written, committed)
	}
	if written == nil || committed == nil {
		return violation("a transaction went on although the fence refused it: %w", fenced)
	}
	return refusal{fenced}
}

// mustRefuse returns nil if err, of a write by a stale holder, is the fence's
// refusal.
func mustRefuse(err error) error {
	stale := errors.Is(err, sqllock.ErrFenced) || errors.Is(err, sqllock.ErrLost)
	switch {
	case err == nil:
		return violation("a stale holder's write was stored")
	case !errors.As(err, new(refusal)) || !stale:
		return fmt.Errorf("a stale holder's write failed, and not by the fence: %w", err)
	}
	return nil
}

// writeLogged makes a write for k and logs it.
func (v *store) writeLogged(ctx context.Context, k *loggedLock) error {
	w := history.Write{Process: k.Hold.Process, Key: k.Hold.Key, Lock: k.Hold.Lock, Number: k.log.number(), Begin: history.Now()}
	err := v.commit(ctx, k.Lock, w)
	w.End, w.Result = history.Now(), worker.ResultOf(err)
	k.log.note(history.Event{Write: &w})
	return err
}

// stored returns all fenced writes, in no order.
func (v *store) stored(ctx context.Context) ([]check.Stored, error) { return worker.Stored(ctx, v.db) }
