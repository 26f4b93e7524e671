package worker

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/latchkey-go/latchkey/internal/chaos/check"
	"github.com/latchkey-go/latchkey/internal/chaos/history"
	"github.com/latchkey-go/latchkey/internal/subprocess"
	"github.com/latchkey-go/latchkey/sqllock"
)

// WriteTimeout bounds a write.
const WriteTimeout = 2 * time.Second

// Schema creates the tables of fenced writes in PostgreSQL, in addition to
// those of sqllock.FenceSchema. N counts the writes of a key in the order of
// their commits, since each write keeps the counter's row locked until it
// commits.
const Schema = tables + `;
GRANT SELECT, INSERT, UPDATE ON counters, writes, latchkey_fence TO PUBLIC`

const tables = `CREATE TABLE counters (key_id bigint PRIMARY KEY, n bigint NOT NULL);
CREATE TABLE writes (key_id bigint, n bigint, lock_id bigint, number bigint, timeline bigint, lsn bigint, PRIMARY KEY (key_id, n))`

// Tables returns the statements that create the tables of fenced writes that are
// not the kit's.
func Tables() []string { return strings.Split(tables, ";") }

// A KitSchema is the statements that create the kit's tables in a database.
type KitSchema struct{ Locks, Fence []string }

func schemaOf(d sqllock.Dialect) KitSchema {
	return KitSchema{sqllock.Schema(d), sqllock.FenceSchema(d)}
}

// SchemaOf returns the KitSchema of a program that was built with another version
// of the kit. If program is empty, it is that of this version.
func SchemaOf(program string, d sqllock.Dialect) (s KitSchema, err error) {
	if program == "" {
		return schemaOf(d), nil
	}
	command, err := subprocess.Command(schemaRole, d)
	if err != nil {
		return s, err
	}
	command.Path = program
	out, err := command.Output()
	return s, errors.Join(err, json.Unmarshal(out, &s))
}

// Store stores, as a part of tx, w and the token that the fence has noted for its
// key.
func Store(ctx context.Context, tx *sql.Tx, w history.Write) error {
	changed, err := tx.ExecContext(ctx, fmt.Sprintf("UPDATE counters SET n = n + 1 WHERE key_id = %d", w.Key))
	if err != nil {
		return err
	}
	n, err := changed.RowsAffected()
	if n == 0 && err == nil { // if two transactions do this at once, one of them fails
		_, err = tx.ExecContext(ctx, fmt.Sprintf("INSERT INTO counters (key_id, n) VALUES (%d, 1)", w.Key))
	}
	if err != nil {
		return err
	}
	_, err = tx.ExecContext(ctx, fmt.Sprintf("INSERT INTO writes (key_id, n, lock_id, number, timeline, lsn)"+
		" SELECT c.key_id, c.n, %d, %d, f.timeline, f.lsn FROM counters c JOIN latchkey_fence f ON f.key_id = c.key_id"+
		" WHERE f.key_space = 0 AND c.key_id = %d", w.Lock, w.Number, w.Key))
	return err
}

// write makes a fenced write in the name of l and writes down how it ended.
func (c *caller) write(l *observedLock) {
	w := history.Write{Process: l.hold.Process, Key: l.hold.Key, Lock: l.hold.Lock, Number: c.number(), Begin: history.Now()}
	w.Result = c.commit(l.Lock, w)
	w.End = history.Now()
	if w.Result == history.OK {
		c.written.Add(1)
	}
	c.note(history.Event{Write: &w})
}

// commit goes on after the fence has refused, as a careless caller would. The
// database must not let it.
func (w *work) commit(lock *sqllock.Lock, of history.Write) history.Result {
	ctx, cancel := context.WithTimeout(context.Background(), WriteTimeout)
	defer cancel()
	tx, err := w.direct.BeginTx(ctx, nil)
	if err != nil {
		return history.Failed
	}
	defer tx.Rollback()
	fence := sqllock.Fence(ctx, tx, lock)
	err = errors.Join(Store(ctx, tx, of), tx.Commit())
	switch {
	case fence != nil && ResultOf(fence) != history.Fenced && ResultOf(fence) != history.Lost, fence == nil && err != nil:
		return history.Failed
	}
	return ResultOf(fence)
}

// Stored is what fenced writes have left in the tables of [Schema], in no order.
func Stored(ctx context.Context, db *sql.DB) (all []check.Stored, err error) {
	rows, err := db.QueryContext(ctx, "SELECT key_id, n, timeline, lsn, lock_id, number FROM writes")
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	for rows.Next() {
		var s check.Stored
		if err := rows.Scan(&s.Key, &s.N, &s.Timeline, &s.LSN, &s.Lock, &s.Number); err != nil {
			return nil, err
		}
		all = append(all, s)
	}
	return all, rows.Err()
}
