package dialect

import (
	"context"
	"database/sql"
	"errors"
	"slices"
	"strconv"
	"time"
)

// SQLite locks with rows of a table, in the file that all processes of a fleet
// on one machine share. Each call is one transaction that begins by locking the
// file for writing, so that it cannot fail half-way because of another's.
type SQLite struct{}

// Traits has a short lease: a dead process is found out by it alone.
func (SQLite) Traits() Traits { return Traits{Lease: 5 * time.Second, Parting: endPatience} }

// Open makes the tables if they are missing, and a session in them. It sets the
// file's journal to write-ahead.
func (SQLite) Open(ctx context.Context, db *sql.DB, set Settings) (Session, error) {
	t := &sqliteTables{db: db}
	var s Session
	err := t.prove(ctx)
	if err == nil {
		s, err = openLease(ctx, t, set, new(inFlight))
	}
	if code, ok := sqliteCode(err); ok && code&0xff == sqliteReadOnly {
		return nil, misconfigured(Fail(err).Error())
	}
	return s, Fail(err)
}

// sqliteTables is the lease table in SQLite.
type sqliteTables struct {
	db  *sql.DB
	wal bool // the journal is written ahead
}

// The file's clock is the machine's, which its processes share. It is one moment within a
// statement.
const (
	sqliteMillis = `CAST((julianday('now') - 2440587.5) * 86400000.0 AS INTEGER)`
	sqliteMicros = `CAST((julianday('now') - 2440587.5) * 86400000000.0 AS INTEGER)`
)

// prove checks that all connections of the pool have one file, which can be written to.
func (t *sqliteTables) prove(ctx context.Context) error {
	conn, err := lendOne(ctx, t.db)
	if err != nil {
		return err
	}
	defer conn.Close()
	was, err := t.lend(ctx, conn)
	if err == nil {
		err = oneFile(ctx, conn)
	}
	if err == nil {
		err = t.writeAhead(ctx, conn)
	}
	was.restore(conn)
	return err
}

func oneFile(ctx context.Context, conn *sql.Conn) error {
	var file string
	if err := conn.QueryRowContext(ctx, "SELECT file FROM pragma_database_list WHERE name = 'main'").Scan(&file); err != nil {
		return err
	}
	if file == "" {
		return refuse("the database is in memory or temporary, and nobody else's: name a file, or use NewMemory for one process")
	}
	var queryOnly bool
	if err := conn.QueryRowContext(ctx, "SELECT query_only FROM pragma_query_only").Scan(&queryOnly); err != nil {
		return err
	}
	if queryOnly {
		return misconfigured("the connections can only read (query_only): Open needs some that can write")
	}
	return nil
}

// writeAhead has the file's journal written ahead, so that readers do not keep the
// sessions from renewing. A file whose journal cannot be changed, because somebody is at
// it or the file system shares no memory, serves as it is.
func (t *sqliteTables) writeAhead(ctx context.Context, conn *sql.Conn) error {
	var mode string
	err := conn.QueryRowContext(ctx, "PRAGMA main.journal_mode = WAL").Scan(&mode)
	t.wal = mode == "wal"
	if isBusy(err) {
		return nil
	}
	return err
}

func (t *sqliteTables) open(ctx context.Context, s *stamp, holder string) error {
	return t.transact(ctx, func(tx *sqliteTx) error {
		for _, statement := range append(leaseTables(sqliteTypes), sqliteFence) {
			tx.exec(statement)
		}
		tx.reap(nil)
		tx.exec(`INSERT INTO main.latchkey_sessions (id, expires, statement, holder) VALUES (?, `+sqliteMillis+` + ?, 0, ?)`,
			s.id, sqliteLease(s), holder)
		return tx.err
	})
}

// sqliteLease is s's in milliseconds, rounded up, and one more for what the clock is rounded down: never
// less than the lease is between the sending of a statement and the expiry.
func sqliteLease(s *stamp) int64 { return (s.lease + time.Millisecond - 1).Milliseconds() + 1 }

// renewed is transact in which s is renewed first.
func (t *sqliteTables) renewed(ctx context.Context, s *stamp, f func(*sqliteTx)) error {
	err := t.transact(ctx, func(tx *sqliteTx) error {
		alive := tx.exec(`UPDATE main.latchkey_sessions SET expires = `+sqliteMillis+` + ?, statement = ? WHERE id = ? AND statement >= ? AND expires > `+sqliteMillis,
			sqliteLease(s), s.next(), s.id, s.acked)
		if tx.err == nil && alive == 0 {
			return errExpired
		}
		f(tx)
		return tx.err
	})
	if err == nil {
		s.acknowledge()
	}
	return err
}

// reap deletes what dead sessions have left, and of keys also what those have whose row somebody
// has deleted. It reports whether there was anything.
func (tx *sqliteTx) reap(keys []Key) bool {
	found := tx.exec(`DELETE FROM main.latchkey_sessions WHERE expires <= ` + sqliteMillis)
	if found > 0 {
		tx.exec(`DELETE FROM main.latchkey_locks WHERE session NOT IN (SELECT id FROM main.latchkey_sessions)`)
		tx.exec(`DELETE FROM main.latchkey_claims WHERE session NOT IN (SELECT id FROM main.latchkey_sessions)`)
	}
	for _, of := range bySpace(keys) {
		found += tx.exec(`DELETE FROM main.latchkey_locks WHERE key_space = ? AND key_id IN (SELECT value FROM json_each(?))
			AND session NOT IN (SELECT id FROM main.latchkey_sessions)`, of.space, of.ids)
	}
	return found > 0
}

func (t *sqliteTables) exchange(ctx context.Context, s *stamp, b *Batch, drawn *tokens) error {
	err := t.exchangeOnce(ctx, s, b, drawn, false)
	if errors.Is(err, errNotAll) {
		err = t.exchangeOnce(ctx, s, b, drawn, true)
	}
	return err
}

// errNotAll is that a key to give back was not held, in a transaction that has not asked
// which: normally all are.
var errNotAll = errors.New("not all that was to be given back was held")

func (t *sqliteTables) exchangeOnce(ctx context.Context, s *stamp, b *Batch, drawn *tokens, exact bool) error {
	w := newWishes(b)
	given := b.Release
	var block Token
	err := t.renewed(ctx, s, func(tx *sqliteTx) {
		if exact {
			given = tx.giveBackExactly(s, b.Release)
		} else {
			tx.giveBack(s, b.Release)
		}
		tx.take(s, b, w)
		if w.again() && tx.reap(w.missing()) {
			tx.take(s, b, w)
		}
		if w.any() {
			block = tx.reserve(tokenBlock)
		}
	})
	if err != nil {
		return err
	}
	if block != (Token{}) {
		drawn.reserve(block, tokenBlock)
	}
	notGiven(b, given)
	w.answer(b)
	return nil
}

const giveBack = `DELETE FROM main.latchkey_locks WHERE session = ? AND key_space = ? AND key_id IN (SELECT value FROM json_each(?))`

func (tx *sqliteTx) giveBack(s *stamp, keys []Key) {
	for _, of := range bySpace(keys) {
		if n := tx.exec(giveBack, s.id, of.space, of.ids); tx.err == nil && n < int64(of.n) {
			tx.err = errNotAll
		}
	}
}

// giveBackExactly returns those of keys that s had.
func (tx *sqliteTx) giveBackExactly(s *stamp, keys []Key) (given []Key) {
	for _, of := range bySpace(keys) {
		given = append(given, tx.keys(giveBack+` RETURNING key_space, key_id`, s.id, of.space, of.ids)...)
	}
	return given
}

// take takes what is free for the groups that are without.
func (tx *sqliteTx) take(s *stamp, b *Batch, w *wishes) {
	const insert = `INSERT INTO main.latchkey_locks (key_space, key_id, session, acquired) SELECT ?, value, ?, ` + sqliteMillis + ` FROM json_each(?) `
	tries := w.groups[:len(b.Try)]
	for _, of := range bySpace(stillOpen(tries)) {
		n := tx.exec(insert+`WHERE true ON CONFLICT DO NOTHING`, of.space, s.id, of.ids)
		if tx.err == nil && n == int64(of.n) {
			allWon(tries, of.space)
			continue
		}
		someWon(tries, tx.keys(`SELECT key_space, key_id FROM main.latchkey_locks WHERE session = ? AND key_space = ?
			AND key_id IN (SELECT value FROM json_each(?))`, s.id, of.space, of.ids))
	}
	for i := range w.groups[len(tries):] {
		g := &w.groups[len(tries)+i]
		if g.won >= 0 {
			continue
		}
		for _, of := range bySpace(g.keys) { // all of one
			for _, k := range tx.keys(insert+`WHERE NOT EXISTS (SELECT 1 FROM main.latchkey_locks WHERE key_space = ? AND key_id = value)
				ORDER BY key LIMIT 1 RETURNING key_space, key_id`, of.space, s.id, of.ids, of.space) {
				g.won = slices.Index(g.keys, k)
			}
		}
	}
}

// tokenBlock is how many tokens an exchange that takes locks brings along.
const tokenBlock = 64

// reserve takes the next n tokens and returns the first: of a counter that is not behind the
// clock, so that a file that was put back to an earlier state does not
// give out the same ones again.
func (tx *sqliteTx) reserve(n int64) (first Token) {
	if tx.exec(`UPDATE main.latchkey_tokens SET number = max(number, `+sqliteMicros+`) + ?`, n) == 0 {
		tx.exec(`INSERT INTO main.latchkey_tokens (only_row, system, number) VALUES (1, `+sqliteTypes.random+`, `+sqliteMicros+` + ?)`, n)
	}
	if tx.err == nil { // RETURNING takes three times as long
		tx.err = tx.conn.QueryRowContext(tx.ctx, `SELECT system, number - ? FROM main.latchkey_tokens`, n).Scan(&first.System, &first.Number)
	}
	return first
}

func (t *sqliteTables) held(ctx context.Context, s *stamp) (keys []Key, err error) {
	err = t.renewed(ctx, s, func(tx *sqliteTx) {
		keys = tx.keys(`SELECT key_space, key_id FROM main.latchkey_locks WHERE session = ?`, s.id)
	})
	return keys, err
}

func (t *sqliteTables) token(ctx context.Context, s *stamp) (first Token, n int64, err error) {
	err = t.renewed(ctx, s, func(tx *sqliteTx) { first = tx.reserve(tokenBlock) })
	return first, tokenBlock, err
}

// claim disputes a claim if another print of its class is claimed.
func (t *sqliteTables) claim(ctx context.Context, s *stamp, wanted, dropped []Claim) (disputed []bool, err error) {
	err = t.renewed(ctx, s, func(tx *sqliteTx) {
		tx.reap(nil)
		tx.exec(`DELETE FROM main.latchkey_claims WHERE session NOT IN (SELECT id FROM main.latchkey_sessions)`)
		for _, c := range dropped {
			tx.exec(`DELETE FROM main.latchkey_claims WHERE class = ? AND print = ? AND session = ?`, c.Class, c.Print, s.id)
		}
		disputed = make([]bool, len(wanted))
		for i, c := range wanted {
			if tx.err == nil {
				tx.err = tx.conn.QueryRowContext(tx.ctx, `SELECT EXISTS (SELECT 1 FROM main.latchkey_claims WHERE class = ? AND print <> ?)`, c.Class, c.Print).
					Scan(&disputed[i])
			}
			if !disputed[i] {
				tx.exec(`INSERT INTO main.latchkey_claims (class, print, session) VALUES (?, ?, ?) ON CONFLICT DO NOTHING`, c.Class, c.Print, s.id)
			}
		}
	})
	return disputed, err
}

func (t *sqliteTables) end(ctx context.Context, s *stamp) error {
	return t.transact(ctx, func(tx *sqliteTx) error {
		tx.exec(`DELETE FROM main.latchkey_sessions WHERE id = ?`, s.id)
		tx.exec(`DELETE FROM main.latchkey_locks WHERE session = ?`, s.id)
		tx.exec(`DELETE FROM main.latchkey_claims WHERE session = ?`, s.id)
		return tx.err
	})
}

// stillOpen is the keys of tries that have not been taken.
func stillOpen(tries []wish) (keys []Key) {
	for i := range tries {
		if tries[i].won < 0 {
			keys = append(keys, tries[i].keys[0])
		}
	}
	return keys
}

// allWon notes that what was still open of a space was taken.
func allWon(tries []wish, space Space) {
	for i := range tries {
		if tries[i].keys[0].Space == space {
			tries[i].won = 0
		}
	}
}

// someWon notes which keys were taken.
func someWon(tries []wish, taken []Key) {
	was := make(map[Key]bool, len(taken))
	for _, k := range taken {
		was[k] = true
	}
	for i := range tries {
		if k := tries[i].keys[0]; was[k] {
			tries[i].won = 0
			delete(was, k)
		}
	}
}

// A spaceful is keys of one space, as a JSON list of their ids.
type spaceful struct {
	space Space
	ids   string
	n     int
}

func bySpace(keys []Key) (of []spaceful) {
	for _, space := range []Space{Bigint, TwoInts} {
		text, n := []byte{'['}, 0
		for _, k := range keys {
			if k.Space == space {
				text = append(strconv.AppendInt(text, k.ID, 10), ',')
				n++
			}
		}
		if n > 0 {
			text[len(text)-1] = ']'
			of = append(of, spaceful{space, string(text), n})
		}
	}
	return of
}

// isBusy reports whether err is of a lock on the file that somebody else has for the
// moment.
func isBusy(err error) bool {
	code, ok := sqliteCode(err)
	return ok && (code&0xff == sqliteBusy || code&0xff == sqliteLocked)
}
