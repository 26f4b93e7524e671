package leasetable

import (
	"context"
	"errors"
	"slices"
	"strconv"

	"github.com/latchkey-go/latchkey/internal/dialect"
)

// exchange implements tables.
func (t *sqliteTables) exchange(ctx context.Context, s *stamp, b *dialect.Batch, reserved *reservedTokens) error {
	err := t.exchangeOnce(ctx, s, b, reserved, false)
	if errors.Is(err, errNotAll) {
		err = t.exchangeOnce(ctx, s, b, reserved, true)
	}
	return err
}

// errNotAll says that the session did not hold all keys of a release. The
// statement does not ask which, since normally it holds all.
var errNotAll = errors.New("not all that was to be given back was held")

// exchangeOnce carries out b in one transaction. With exact it finds out which
// keys of a release were not held.
func (t *sqliteTables) exchangeOnce(ctx context.Context, s *stamp, b *dialect.Batch, reserved *reservedTokens, exact bool) error {
	w := newCandidates(b)
	given := b.Release
	var block dialect.Token
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
	if block != (dialect.Token{}) {
		reserved.reserve(block, tokenBlock)
	}
	notGiven(b, given)
	w.respond(b)
	return nil
}

// giveBack deletes the rows of some keys.
const giveBack = `DELETE FROM main.latchkey_locks WHERE session = ? AND key_space = ? AND key_id IN (SELECT value FROM json_each(?))`

// giveBack gives keys back. It fails with errNotAll if s did not hold all of
// them.
func (tx *sqliteTx) giveBack(s *stamp, keys []dialect.Key) {
	for _, of := range bySpace(keys) {
		if n := tx.exec(giveBack, s.id, of.space, of.ids); tx.err == nil && n < int64(of.n) {
			tx.err = errNotAll
		}
	}
}

// giveBackExactly gives keys back and returns those that s held.
func (tx *sqliteTx) giveBackExactly(s *stamp, keys []dialect.Key) (given []dialect.Key) {
	for _, of := range bySpace(keys) {
		given = append(given, tx.keys(giveBack+` RETURNING key_space, key_id`, s.id, of.space, of.ids)...)
	}
	return given
}

// take takes the first free keys for each group that wants more.
func (tx *sqliteTx) take(s *stamp, b *dialect.Batch, w *candidates) {
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
		for _, of := range bySpace(g.left()) {
			for _, k := range tx.keys(insert+`WHERE NOT EXISTS (SELECT 1 FROM main.latchkey_locks WHERE key_space = ? AND key_id = value)
				ORDER BY key LIMIT ? RETURNING key_space, key_id`, of.space, s.id, of.ids, of.space, g.want-len(g.won)) {
				g.won = append(g.won, slices.Index(g.keys, k))
			}
		}
	}
}

// stillOpen returns the keys of tries that are not taken.
func stillOpen(tries []group) (keys []dialect.Key) {
	for i := range tries {
		if tries[i].open() {
			keys = append(keys, tries[i].keys[0])
		}
	}
	return keys
}

// allWon notes that all remaining keys of a space are taken.
func allWon(tries []group, space dialect.Space) {
	for i := range tries {
		if tries[i].keys[0].Space == space && tries[i].open() {
			tries[i].won = append(tries[i].won, 0)
		}
	}
}

// someWon notes which keys are taken.
func someWon(tries []group, taken []dialect.Key) {
	was := make(map[dialect.Key]bool, len(taken))
	for _, k := range taken {
		was[k] = true
	}
	for i := range tries {
		if k := tries[i].keys[0]; was[k] {
			tries[i].won = append(tries[i].won, 0)
			delete(was, k)
		}
	}
}

// keysOfSpace are the keys of one space, as a JSON list of their ids.
type keysOfSpace struct {
	space dialect.Space
	ids   string
	n     int
}

// bySpace sorts keys by their spaces.
func bySpace(keys []dialect.Key) (of []keysOfSpace) {
	for _, space := range []dialect.Space{dialect.Bigint, dialect.TwoInts} {
		text, n := []byte{'['}, 0
		for _, k := range keys {
			if k.Space == space {
				text = append(strconv.AppendInt(text, k.ID, 10), ',')
				n++
			}
		}
		if n > 0 {
			text[len(text)-1] = ']'
			of = append(of, keysOfSpace{space, string(text), n})
		}
	}
	return of
}
