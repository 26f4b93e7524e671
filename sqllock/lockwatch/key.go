package lockwatch

import (
	"cmp"
	"fmt"
	"strconv"

	"github.com/latchkey-go/latchkey/internal/dialect"
	"github.com/latchkey-go/latchkey/sqllock"
)

// keyOf returns the key with this number in the database. It has no namespace.
func keyOf(space dialect.Space, id int64) sqllock.Key {
	if space == dialect.TwoInts {
		return sqllock.Pair(int32(id>>32), int32(id))
	}
	return sqllock.ID(id)
}

// idOf returns the number of key in the database. Two keys exclude each other
// exactly if their numbers are equal.
func idOf(key sqllock.Key) dialect.Key {
	if _, _, isPair := key.Pair(); isPair {
		return dialect.Key{Space: dialect.TwoInts, ID: key.Int64()}
	}
	return dialect.Key{Space: dialect.Bigint, ID: key.Int64()}
}

func compareKeys(a, b sqllock.Key) int { return compareIDs(idOf(a), idOf(b)) }

func compareIDs(a, b dialect.Key) int {
	return cmp.Or(cmp.Compare(a.Space, b.Space), cmp.Compare(a.ID, b.ID))
}

// compareFirst orders what is first before what is not.
func compareFirst(a, b bool) int {
	switch {
	case a == b:
		return 0
	case a:
		return -1
	}
	return 1
}

// keyText returns key as the arguments of PostgreSQL's functions.
func keyText(key sqllock.Key) string {
	if class, object, isPair := key.Pair(); isPair {
		return fmt.Sprintf("%d, %d", class, object)
	}
	return strconv.FormatInt(key.Int64(), 10)
}

// shortText returns the beginning of a number that no reader remembers, and any
// other key as it is.
func shortText(key sqllock.Key) string {
	const whole, start = 10, 7 // with the sign
	text := keyText(key)
	if _, _, isPair := key.Pair(); isPair || len(text) <= whole {
		return text
	}
	return text[:start] + "…"
}
