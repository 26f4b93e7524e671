package lockwatch

import (
	"cmp"
	"fmt"
	"strconv"

	"github.com/latchkey-go/latchkey/internal/dialect"
	"github.com/latchkey-go/latchkey/sqllock"
)

// keyOf returns the key that the database knows by space and id. It has no
// namespace.
func keyOf(space dialect.Space, id int64) sqllock.Key {
	if space == dialect.TwoInts {
		return sqllock.Pair(int32(id>>32), int32(id))
	}
	return sqllock.ID(id)
}

// idOf returns the key as the database knows it, whatever namespace it was made in.
func idOf(key sqllock.Key) dialect.Key {
	if id := key.Int64(); key == keyOf(dialect.TwoInts, id) {
		return dialect.Key{Space: dialect.TwoInts, ID: id}
	}
	return dialect.Key{Space: dialect.Bigint, ID: key.Int64()}
}

func compareKeys(a, b sqllock.Key) int {
	x, y := idOf(a), idOf(b)
	return cmp.Or(cmp.Compare(x.Space, y.Space), cmp.Compare(x.ID, y.ID))
}

// keyText returns key as the arguments of PostgreSQL's functions.
func keyText(key sqllock.Key) string {
	id := idOf(key)
	if id.Space == dialect.Bigint {
		return strconv.FormatInt(id.ID, 10)
	}
	return fmt.Sprintf("%d, %d", int32(id.ID>>32), int32(id.ID))
}
