package leasetable

import (
	"context"
	"slices"
	"strings"

	"github.com/latchkey-go/latchkey/internal/dialect"
)

// exchange implements tables.
func (t *mysqlTables) exchange(ctx context.Context, s *stamp, b *dialect.Batch, _ *reservedTokens) error {
	var what taking
	err := t.with(ctx, s, func(c mysqlConn) error {
		if err := c.renew(""); err != nil {
			return err
		}
		if len(b.Release) > 0 {
			given, err := c.changed("DELETE FROM SCHEMA.latchkey_locks WHERE " + mysqlAmong("", b.Release) + " AND session = SESSION AND statement < NUMBER")
			if err != nil {
				return err
			}
			b.NotHeld = given < int64(len(b.Release))
		}
		what = newTaking(b)
		return c.take(what)
	})
	if err == nil {
		s.acknowledge()
		what.respond(b)
	}
	return err
}

// take takes free keys for the looks of what. It inserts the first keys of each,
// as if all were free, and looks at the rows only if some were not. Keys that are
// seen then are not tried again, unless their rows do not count.
func (c mysqlConn) take(what taking) error {
	seen := make(map[dialect.Key]bool)
	for reaped := false; ; {
		keys := what.choose(seen)
		if len(keys) == 0 {
			return nil
		}
		n, err := c.changed("INSERT IGNORE INTO SCHEMA.latchkey_locks (key_space, key_id, session, statement) VALUES " + c.rowsOf(keys))
		if err != nil {
			return err
		}
		won := keys
		if n != int64(len(keys)) {
			rows, err := c.look(what.missing())
			if err == nil && !reaped {
				reaped = true
				rows, err = c.reap(what.missing(), rows)
			}
			if err != nil {
				return err
			}
			won = nil
			for _, r := range rows {
				if r.session == c.s.id && r.statement == c.s.last && !seen[r.key] {
					won = append(won, r.key)
				}
				seen[r.key] = true
			}
		}
		for _, k := range won {
			seen[k] = true
		}
		if err := what.took(won); err != nil {
			return err
		}
	}
}

// rowsOf returns the rows of locks.
func (c mysqlConn) rowsOf(keys []dialect.Key) string {
	rows := make([]string, len(keys))
	for i, k := range keys {
		rows[i] = "(" + number(int64(k.Space)) + "," + number(k.ID) + ",SESSION,NUMBER)"
	}
	return strings.Join(rows, ",")
}

// A lockRow is the row of a lock.
type lockRow struct {
	key                dialect.Key
	session, statement int64
	dead               bool // it does not count
	expired            bool // its session has expired, and its row is still there
}

// look reads the rows of keys, and then those of their sessions. A session's row
// is there before the rows of its locks. Without a join TiDB need not plan much.
func (c mysqlConn) look(keys []dialect.Key) ([]lockRow, error) {
	locks, err := c.numbers("SELECT key_space, key_id, session, statement FROM SCHEMA.latchkey_locks WHERE " + mysqlAmong("", keys) + " LIMIT " + all + " LOCKING")
	if err != nil || len(locks) == 0 {
		return nil, err
	}
	ids := make([]string, len(locks))
	for i, l := range locks {
		ids[i] = number(l[2])
	}
	slices.Sort(ids)
	sessions, err := c.numbers("SELECT id, counts_from, expires <= CLOCK FROM SCHEMA.latchkey_sessions WHERE id IN (" + strings.Join(slices.Compact(ids), ",") + ") LIMIT " + all + " LOCKING")
	if err != nil {
		return nil, err
	}
	byID := make(map[int64][6]int64, len(sessions))
	for _, s := range sessions {
		byID[s[0]] = s
	}
	rows := make([]lockRow, len(locks))
	for i, l := range locks {
		s, lives := byID[l[2]]
		rows[i] = lockRow{dialect.Key{Space: dialect.Space(l[0]), ID: l[1]}, l[2], l[3], !lives || l[3] < s[1], s[2] != 0} //nolint:gosec // a session wrote it
	}
	return rows, nil
}

// reap deletes those of rows, which are of keys, that do not count, and returns
// the others. The session of an expired row may be renewing itself at this
// moment. So its own row goes first, and the rows are read again.
func (c mysqlConn) reap(keys []dialect.Key, rows []lockRow) ([]lockRow, error) {
	sessions := make(map[int64]bool)
	for _, r := range rows {
		if r.expired && !r.dead {
			sessions[r.session] = true
		}
	}
	for id := range sessions {
		if err := c.remove(id); err != nil {
			return nil, err
		}
	}
	if len(sessions) > 0 {
		var err error
		if rows, err = c.look(keys); err != nil {
			return nil, err
		}
	}
	var dead, pairs []string
	var deadKeys []dialect.Key
	var left []lockRow
	for _, r := range rows {
		if !r.dead {
			left = append(left, r)
			continue
		}
		dead = append(dead, number(r.session))
		pairs = append(pairs, "("+number(r.session)+","+number(r.statement)+")")
		deadKeys = append(deadKeys, r.key)
	}
	if len(dead) == 0 {
		return left, nil
	}
	_, err := c.exec("DELETE FROM SCHEMA.latchkey_locks WHERE " + mysqlAmong("", deadKeys) + " AND (session, statement) IN (" + strings.Join(pairs, ",") + ")")
	return left, err
}

// mysqlAmong is the condition that a row is that of one of keys, in a form for
// which every server uses the primary key. table is the table's name and a dot.
func mysqlAmong(table string, keys []dialect.Key) string {
	var bySpace [dialect.TwoInts + 1][]string
	for _, k := range keys {
		bySpace[k.Space] = append(bySpace[k.Space], number(k.ID))
	}
	var conditions []string
	for space, ids := range bySpace {
		if len(ids) > 0 {
			conditions = append(conditions, table+"key_space = "+number(int64(space))+" AND "+table+"key_id IN ("+strings.Join(ids, ",")+")")
		}
	}
	return "(" + strings.Join(conditions, " OR ") + ")"
}
