package leasetable

import (
	"context"
	"errors"
	"strconv"
	"strings"

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
	what := newTaking(b)
	given := b.Release
	var block dialect.Token
	err := t.renewed(ctx, s, func(tx *sqliteTx) {
		if exact {
			given = tx.giveBackExactly(s, b.Release)
		} else {
			tx.giveBack(s, b.Release)
		}
		tx.take(s, what, len(b.Try))
		if keys := what.missing(); len(keys) > 0 && tx.reap(keys) {
			tx.take(s, what, len(b.Try))
		}
		if what.any() {
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
	what.respond(b)
	return nil
}

// giveBack deletes the rows of some keys.
const giveBack = `DELETE FROM main.latchkey_locks WHERE session = ? AND key_space = ? AND key_id IN (SELECT value FROM json_each(?))`

// giveBack gives keys back. It fails with errNotAll if s did not hold all of
// them.
func (tx *sqliteTx) giveBack(s *stamp, keys []dialect.Key) {
	for _, of := range bySpace(keys) {
		if n := tx.exec(giveBack, s.id, of.space, of.ids); tx.err == nil && n < int64(len(of.keys)) {
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

// take takes the first free keys for each look that wants more. The first tries
// of them are for one key each, and share a statement.
func (tx *sqliteTx) take(s *stamp, what taking, tries int) {
	const insert = `INSERT INTO main.latchkey_locks (key_space, key_id, session, acquired) SELECT ?, value, ?, ` + sqliteMillis + ` FROM json_each(?) `
	for _, of := range bySpace(what[:tries].missing()) {
		taken := of.keys
		if n := tx.exec(insert+`WHERE true ON CONFLICT DO NOTHING`, of.space, s.id, of.ids); n < int64(len(of.keys)) {
			taken = tx.keys(`SELECT key_space, key_id FROM main.latchkey_locks WHERE session = ? AND key_space = ?
				AND key_id IN (SELECT value FROM json_each(?))`, s.id, of.space, of.ids)
		}
		tx.note(what[:tries].took(taken))
	}
	for i := tries; i < len(what); i++ {
		l := what[i : i+1]
		for _, of := range bySpace(l.missing()) {
			tx.note(l.took(tx.keys(insert+`WHERE NOT EXISTS (SELECT 1 FROM main.latchkey_locks WHERE key_space = ? AND key_id = value)
				ORDER BY key LIMIT ? RETURNING key_space, key_id`, of.space, s.id, of.ids, of.space, l[0].Want-len(l[0].Won))))
		}
	}
}

// keysOfSpace are the keys of one space, and their ids as a JSON list.
type keysOfSpace struct {
	space dialect.Space
	keys  []dialect.Key
	ids   string
}

// bySpace sorts keys by their spaces.
func bySpace(keys []dialect.Key) (all []keysOfSpace) {
	for _, space := range []dialect.Space{dialect.Bigint, dialect.TwoInts} {
		of, ids := keysOfSpace{space: space}, []string(nil)
		for _, k := range keys {
			if k.Space == space {
				of.keys, ids = append(of.keys, k), append(ids, strconv.FormatInt(k.ID, 10))
			}
		}
		if of.ids = "[" + strings.Join(ids, ",") + "]"; len(ids) > 0 {
			all = append(all, of)
		}
	}
	return all
}
