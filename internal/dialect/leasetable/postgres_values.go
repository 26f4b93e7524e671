package leasetable

import (
	"database/sql"
	"strconv"
	"strings"

	"github.com/latchkey-go/latchkey/internal/dialect"
)

// unnestKeys returns an SQL table of keys: key space s and id k. unnest of
// several arrays is PostgreSQL's own without its schema, and only so.
func unnestKeys(keys []dialect.Key) string {
	spaces, ids := make([]string, len(keys)), make([]string, len(keys))
	for i, k := range keys {
		spaces[i], ids[i] = strconv.Itoa(int(k.Space)), strconv.FormatInt(k.ID, 10)
	}
	return "unnest('{" + strings.Join(spaces, ",") + "}'::int[], '{" + strings.Join(ids, ",") + "}'::bigint[]) AS u (s, k)"
}

// splitInts reads a list of numbers. It returns -1 for an element that is no
// number.
func splitInts(list string) (numbers []int64) {
	if list == "" {
		return nil
	}
	for item := range strings.SplitSeq(list, ",") {
		n, err := strconv.ParseInt(item, 10, 64)
		if err != nil {
			n = -1
		}
		numbers = append(numbers, n)
	}
	return numbers
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
