package leasetable

import (
	"strconv"

	"github.com/latchkey-go/latchkey/internal/dialect"
)

// unnestKeys returns an SQL table of keys: key space s and id k.
func unnestKeys(keys []dialect.Key) string {
	spaces, ids := make([]string, len(keys)), make([]string, len(keys))
	for i, k := range keys {
		spaces[i], ids[i] = strconv.Itoa(int(k.Space)), strconv.FormatInt(k.ID, 10)
	}
	return "unnest(" + array(spaces) + "::int[], " + array(ids) + "::bigint[]) AS u (s, k)"
}
