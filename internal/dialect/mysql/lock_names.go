package mysql

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"

	"github.com/latchkey-go/latchkey/internal/dialect"
)

// lockNames makes the names of locks.
//
// Invariant: names are ASCII, of equal length, and shorter than MySQL's limit
// of 64. They begin with a hash of the database's name, since GET_LOCK's names
// are those of the whole server.
type lockNames struct{ prefix string }

// newLockNames returns the names for a database.
func newLockNames(database []byte) lockNames {
	sum := sha256.Sum256(database)
	return lockNames{"latchkey." + hex.EncodeToString(sum[:4]) + "."}
}

// appendName appends the name of key's lock, in quotes.
func (n lockNames) appendName(text []byte, key dialect.Key) []byte {
	text = append(text, '\'')
	text = append(text, n.prefix...)
	text = append(text, '0'+byte(key.Space), '.')
	id := uint64(key.ID) //nolint:gosec // its bits
	for shift := 60; shift >= 0; shift -= 4 {
		text = append(text, "0123456789abcdef"[id>>shift&0xf])
	}
	return append(text, '\'')
}

// ofSession returns the name of the lock that a session holds while it lives.
func (n lockNames) ofSession(id uint64) string { return fmt.Sprintf("%ss.%016x", n.prefix, id) }
