package worker

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/latchkey-go/latchkey/internal/chaos/check"
	"github.com/latchkey-go/latchkey/internal/chaos/history"
	"github.com/latchkey-go/latchkey/sqllock"
	"github.com/latchkey-go/latchkey/sqllock/watermark"
)

// marksKeys is how many watermarks there are.
const marksKeys = 3

func marksKey(i int) sqllock.Key { return sqllock.Namespace("marks").Key(strconv.Itoa(i)) }

// tick is how long a watermark's next number stays the same. All processes
// derive it from the clock of the host, so several want the same one.
const tick = history.Moment(5 * time.Millisecond)

// advancesSchema makes the tables of advances. The counter of a key is counted
// up by each transaction, which keeps its row locked until it commits.
func advancesSchema() []string {
	all := []string{
		"CREATE TABLE advance_counters (key_id bigint PRIMARY KEY, n bigint NOT NULL)",
		"CREATE TABLE advances (key_id bigint NOT NULL, n bigint NOT NULL, mark bigint NOT NULL," +
			" number bigint NOT NULL, began bigint NOT NULL, PRIMARY KEY (key_id, n))",
	}
	for i := range marksKeys {
		all = append(all, fmt.Sprintf("INSERT INTO advance_counters VALUES (%d, 0)", marksKey(i).Int64()))
	}
	return all
}

// An advancing caller raises watermarks, behind a fence or without a lock, and
// reads them.
type advancing struct{ caller }

func (c *advancing) run(resting context.Context) {
	for resting.Err() == nil {
		key := marksKey(c.rng.IntN(marksKeys))
		switch n := c.rng.IntN(100); {
		case n < 25:
			c.read(key)
		case n < 50:
			c.fenced(key)
		default:
			c.advance(key, nil, 0)
		}
		_ = Pause(resting, c.upTo(15*time.Millisecond))
	}
}

func (c *advancing) read(key sqllock.Key) {
	m := history.Mark{Process: c.w.config.Process, Key: key.Int64(), Begin: history.Now()}
	ctx, cancel := context.WithTimeout(context.Background(), WriteTimeout)
	defer cancel()
	var err error
	m.At, m.Is, err = watermark.Get(ctx, c.w.direct, key)
	m.End = history.Now()
	if err == nil {
		c.w.note(history.Event{Serviced: history.Serviced{Mark: &m}})
	}
}

// fenced advances key under its lock, if that is free. A holder goes on after a
// loss, as a careless one would.
func (c *advancing) fenced(key sqllock.Key) {
	lock, number := c.taken(key)
	if lock == nil {
		return
	}
	for range 1 + c.rng.IntN(3) {
		lock.Look()
		c.advance(key, lock.Lock, number)
	}
	lock.Look()
	c.w.noteHold(lock.GiveBack())
}

// taken tries key and notes that. Without a grant the lock is nil.
func (c *caller) taken(key sqllock.Key) (*ObservedLock, int64) {
	try := history.Try{Process: c.w.config.Process, Key: key.Int64(), Kind: history.Service, Begin: history.Now()}
	lock, err := c.w.session.TryLock(context.Background(), key)
	try.End, try.Result = history.Now(), ResultOf(err)
	c.count(err, try.Begin)
	if err != nil {
		c.w.note(history.Event{Try: &try})
		return nil, 0
	}
	try.Lock = c.w.number()
	c.w.note(history.Event{Try: &try})
	held := c.w.observe(lock, try.Lock, false)
	held.Hold.Kind = try.Kind
	c.w.noteHold(held.Hold)
	return held, try.Lock
}

// advance raises the watermark of key, behind the fence of lock if there is one.
func (c *advancing) advance(key sqllock.Key, lock *sqllock.Lock, number int64) {
	a := history.Advance{
		Process: c.w.config.Process, Key: key.Int64(), Number: c.w.number(), Lock: number,
		To: int64(history.Now()/tick) + int64(c.rng.IntN(6)), Begin: history.Now(),
	}
	ctx, cancel := context.WithTimeout(context.Background(), WriteTimeout)
	defer cancel()
	a.Result = c.commit(ctx, key, lock, a)
	a.End = history.Now()
	c.w.note(history.Event{Serviced: history.Serviced{Advance: &a}})
}

// commit goes on after a rejection, as a careless caller would. The database
// must not let it.
func (c *advancing) commit(ctx context.Context, key sqllock.Key, lock *sqllock.Lock, a history.Advance) history.Result {
	tx, err := c.w.direct.BeginTx(ctx, nil)
	if err != nil {
		return history.Failed
	}
	defer tx.Rollback()
	var fence error
	if lock != nil {
		fence = sqllock.Fence(ctx, tx, lock)
	}
	passed := watermark.Advance(ctx, tx, key, a.To)
	err = errors.Join(storeAdvance(ctx, tx, a), tx.Commit())
	switch {
	case errors.Is(fence, sqllock.ErrFenced):
		return history.Fenced
	case errors.Is(fence, sqllock.ErrLost), errors.Is(fence, sqllock.ErrReleased):
		return history.Lost
	case fence == nil && errors.Is(passed, watermark.ErrPassed):
		return history.Passed
	case fence != nil, passed != nil, err != nil:
		return history.Failed
	}
	return history.OK
}

// storeAdvance stores a as a part of tx.
func storeAdvance(ctx context.Context, tx *sql.Tx, a history.Advance) error {
	if _, err := tx.ExecContext(ctx, fmt.Sprintf("UPDATE advance_counters SET n = n + 1 WHERE key_id = %d", a.Key)); err != nil {
		return err
	}
	_, err := tx.ExecContext(ctx, fmt.Sprintf("INSERT INTO advances (key_id, n, mark, number, began)"+
		" SELECT key_id, n, %d, %d, %d FROM advance_counters WHERE key_id = %d", a.To, a.Number, a.Begin, a.Key))
	return err
}

// advanced is what advances have stored.
func advanced(ctx context.Context, db *sql.DB) (all []check.Advanced, err error) {
	rows, err := db.QueryContext(ctx, "SELECT key_id, n, mark, number, began FROM advances")
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	for rows.Next() {
		var a check.Advanced
		if err := rows.Scan(&a.Key, &a.N, &a.To, &a.Number, &a.Began); err != nil {
			return nil, err
		}
		all = append(all, a)
	}
	return all, rows.Err()
}

// marks are the watermarks as they are.
func marks(ctx context.Context, db *sql.DB) (all []check.Marked, err error) {
	for i := range marksKeys {
		at, ok, err := watermark.Get(ctx, db, marksKey(i))
		if err != nil {
			return nil, err
		}
		if ok {
			all = append(all, check.Marked{Key: marksKey(i).Int64(), At: at})
		}
	}
	return all, nil
}
