package mysql

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"strconv"
	"strings"

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

// appendCall appends the name of key's lock, between two parts of a call.
func (n lockNames) appendCall(text []byte, before string, key dialect.Key, after string) []byte {
	return append(n.appendName(append(text, before...), key), after...)
}

// key returns the key whose lock has this name. Other programs' locks, those of
// other databases and those of sessions have none.
func (n lockNames) key(name string) (key dialect.Key, ok bool) {
	rest, ok := strings.CutPrefix(name, n.prefix)
	if !ok || len(rest) != len("0.0123456789abcdef") || rest[1] != '.' || rest[0] != '0' && rest[0] != '1' {
		return key, false
	}
	if strings.ToLower(rest) != rest { // MariaDB tells such a name from ours
		return key, false
	}
	id, err := strconv.ParseUint(rest[2:], 16, 64)
	key = dialect.Key{Space: dialect.Space(rest[0] - '0'), ID: int64(id)} //nolint:gosec // its bits
	return key, err == nil
}

// ofSession returns the name of the lock that a session holds while it lives.
func (n lockNames) ofSession(id uint64) string { return fmt.Sprintf("%ss.%016x", n.prefix, id) }
