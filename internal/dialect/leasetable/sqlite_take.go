package leasetable

import (
	"context"
	"fmt"

	"github.com/latchkey-go/latchkey/internal/dialect"
)

// exchange implements tables. It carries out b in one transaction.
func (t *sqliteTables) exchange(ctx context.Context, s *stamp, b *dialect.Batch, reserved *reservedTokens) error {
	what := newTaking(b)
	var given int64
	var block dialect.Token
	err := t.renewed(ctx, s, func(tx *sqliteTx) {
		given = tx.exec(`DELETE FROM main.latchkey_locks WHERE session = ? AND `+isAmong, s.id, keysAsJSON(b.Release))
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
	b.NotHeld = given < int64(len(b.Release))
	what.respond(b)
	return nil
}

// take takes the first free keys for each look that wants more. The first tries
// of them are for one key each, and share a statement.
func (tx *sqliteTx) take(s *stamp, what taking, tries int) {
	tx.takeSome(s, what[:tries], tries)
	for i := tries; i < len(what); i++ {
		tx.takeSome(s, what[i:i+1], what[i].Want-len(what[i].Won))
	}
}

// takeSome takes the first free keys of what, and no more than want. It asks which
// keys it has got only if there is a doubt: RETURNING takes three times as long.
func (tx *sqliteTx) takeSome(s *stamp, what taking, want int) {
	keys := what.missing()
	if len(keys) == 0 {
		return
	}
	ids := keysAsJSON(keys)
	switch n := tx.exec(`INSERT INTO main.latchkey_locks (key_space, key_id, session, acquired)
		SELECT `+keyColumns+`, ?, `+sqliteMillis+` FROM json_each(?)
		WHERE NOT EXISTS (SELECT 1 FROM main.latchkey_locks WHERE key_space = json_extract(value, '$[0]') AND key_id = json_extract(value, '$[1]')) ORDER BY key LIMIT ?`, s.id, ids, want); n {
	case 0:
		keys = nil
	case int64(len(keys)):
	default:
		keys = tx.keys(keysOfSession+` AND `+isAmong, s.id, ids)
	}
	tx.note(what.took(keys))
}

const (
	// keyColumns are the space and the id of an element of keysAsJSON.
	keyColumns = `json_extract(value, '$[0]'), json_extract(value, '$[1]')`

	// isAmong is the condition that a row is that of a key of keysAsJSON.
	isAmong = `(key_space, key_id) IN (SELECT ` + keyColumns + ` FROM json_each(?))`
)

// keysAsJSON returns the space and the id of each key.
func keysAsJSON(keys []dialect.Key) string {
	text := []byte{'['}
	for i, k := range keys {
		if i > 0 {
			text = append(text, ',')
		}
		text = fmt.Appendf(text, "[%d,%d]", k.Space, k.ID)
	}
	return string(append(text, ']'))
}
