//go:build linux

package round

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/latchkey-go/latchkey/internal/chaos/fleet"
	"github.com/latchkey-go/latchkey/internal/chaos/history"
	"github.com/latchkey-go/latchkey/internal/chaos/worker"
	"github.com/latchkey-go/latchkey/sqllock"
)

// oldProcess is the number of old holders in the history. It is none of a
// worker's, and lib/pq is not its driver.
const oldProcess = 101

// An oldHolder is a holder on the side of an old primary. It is connected through
// that primary's Unix socket, so its session outlives every cut, and its lease
// outlives the fault.
type oldHolder struct {
	run     *run
	pool    *sql.DB
	session *sqllock.Session
	lock    *sqllock.Lock
	number  int64 // of the lock
}

// holdIn makes a holder of a lock of pool and has it write once, so that it has
// its token.
func (r *run) holdIn(ctx context.Context, pool *sql.DB) (h *oldHolder, err error) {
	h = &oldHolder{run: r, pool: pool, number: r.number()}
	h.session, err = sqllock.Open(ctx, pool, sqllock.WithLease(10*time.Minute), sqllock.WithLogger(slog.New(slog.DiscardHandler)))
	if err == nil {
		h.lock, err = h.session.TryLock(ctx, sqllock.Namespace("old").Key("primary"))
	}
	if err == nil {
		_, err = h.write(ctx, pool)
	}
	if err != nil {
		h.end()
		return nil, err
	}
	return h, nil
}

// number is one for a lock or a write of this process, unique in the history.
func (r *run) number() int64 {
	r.numbers++
	return oldProcess*1_000_000_000 + r.numbers
}

// end gives the holder up. Its server may have ended long before.
func (h *oldHolder) end() {
	if h.session != nil {
		_ = h.session.Close()
	}
	_ = h.pool.Close()
}

// goOn has the holder go on as if nothing had happened, when db is that of the
// new primary. The holder writes there, and must be refused: goOn counts that in
// o. Then it writes on the old primary, whose database need not be the one that
// remains.
func (h *oldHolder) goOn(ctx context.Context, db *sql.DB, o *Outcome) error {
	if h.lock.Err() != nil { // told: the old primary has stepped down
		return nil
	}
	var result history.Result
	var failed error
	err := fleet.Poll(ctx, 20*time.Second, "a new primary to decide on a write", func(ctx context.Context) (bool, error) {
		result, failed = h.write(ctx, db)
		return result == history.Fenced || result == history.Lost || result == history.OK, nil
	})
	if err != nil {
		return fmt.Errorf("a holder on the old primary: %w", errors.Join(err, failed))
	}
	switch result {
	case history.Fenced:
		o.Refused++
		_, _ = h.write(ctx, h.pool) // if it fails, the old primary is over
	case history.OK:
		h.run.violated("the new primary's fence let a holder of the old one write")
	}
	return nil
}

// write makes a fenced write through db, and adds it to the history. It stores
// the row even after a refusal, as a careless holder would: the database must not
// let it.
func (h *oldHolder) write(ctx context.Context, db *sql.DB) (history.Result, error) {
	w := &history.Write{Process: oldProcess, Key: h.lock.Key().Int64(), Lock: h.number, Number: h.run.number(), Begin: history.Now()}
	ctx, cancel := context.WithTimeout(ctx, worker.WriteTimeout)
	defer cancel()
	tx, err := db.BeginTx(ctx, nil)
	if err == nil {
		err = errors.Join(sqllock.Fence(ctx, tx, h.lock), worker.Store(ctx, tx, *w), tx.Commit())
		_ = tx.Rollback()
	}
	w.Result, w.End = worker.ResultOf(err), history.Now()
	h.run.events = append(h.run.events, history.Event{Write: w})
	return w.Result, err
}
