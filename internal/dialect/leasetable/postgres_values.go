package leasetable

import (
	"database/sql"
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

// nullable returns destinations for numbers that are NULL if the session has
// expired.
func nullable(numbers []any) []any {
	for i, n := range numbers {
		numbers[i] = &orNull{n.(*int64)}
	}
	return numbers
}

// orNull scans a number, or zero for NULL.
type orNull struct{ n *int64 }

// Scan implements sql.Scanner.
func (o *orNull) Scan(value any) error {
	var v sql.NullInt64
	err := v.Scan(value)
	*o.n = v.Int64
	return err
}
