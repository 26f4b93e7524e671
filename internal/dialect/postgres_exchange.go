package dialect

import (
	"strconv"
	"strings"
)

// A form is a shape of the one statement that carries a batch: which parts it
// has. Each form in use is prepared once per session.
type form uint8

const (
	releaseBigint form = 1 << iota
	releaseTwoInts
	tryBigint
	tryTwoInts
	tryAny
	single // the one part is one key, not an array: 10 to 15 µs cheaper
)

// A part of the statement is a column of its one row: the losers of one kind,
// normally none. The executor computes the columns of a row in order, so
// releases come first.
var parts = []struct {
	form   form
	array  string // the column for many keys, %N their array
	single string // for one key
}{
	{releaseBigint,
		`ARRAY(SELECT k FROM unnest(%N::bigint[]) k WHERE NOT pg_advisory_unlock(k))::text`,
		`CASE WHEN pg_advisory_unlock(%N::bigint) THEN '{}' ELSE '{' || %N || '}' END`},
	{releaseTwoInts,
		`ARRAY(SELECT k FROM unnest(%N::bigint[]) k WHERE NOT pg_advisory_unlock((k >> 32)::int, ((k << 32) >> 32)::int))::text`, ""},
	{tryBigint,
		`ARRAY(SELECT k FROM unnest(%N::bigint[]) k WHERE NOT pg_try_advisory_lock(k))::text`,
		`CASE WHEN pg_try_advisory_lock(%N::bigint) THEN '{}' ELSE '{' || %N || '}' END`},
	{tryTwoInts,
		`ARRAY(SELECT k FROM unnest(%N::bigint[]) k WHERE NOT pg_try_advisory_lock((k >> 32)::int, ((k << 32) >> 32)::int))::text`, ""},
	// For each group the position of the key that was taken, 0 for none.
	{tryAny,
		`ARRAY(SELECT coalesce((SELECT i FROM unnest(g::bigint[]) WITH ORDINALITY AS u(k, i)
			WHERE pg_try_advisory_lock(k) LIMIT 1), 0) FROM unnest(%N::text[]) g)::text`, ""},
}

// query is the statement of f. It names no key, and only one row comes back.
func (f form) query() string {
	columns := []string{"pg_backend_pid()"}
	for _, part := range parts {
		if f&part.form == 0 {
			continue
		}
		column := part.array
		if f&single != 0 {
			column = part.single
		}
		columns = append(columns, strings.ReplaceAll(column, "%N", "$"+strconv.Itoa(len(columns))))
	}
	return "SELECT " + strings.Join(columns, ", ")
}

// formOf chooses the form that b needs, and its arguments in the order of its
// parts. Arrays travel as text, which every driver passes on as it is.
func formOf(b *Batch) (form, []any) {
	if len(b.Any) == 0 && len(b.Release)+len(b.Try) == 1 {
		if len(b.Release) == 1 && b.Release[0].Space == Bigint {
			return releaseBigint | single, []any{b.Release[0].ID}
		}
		if len(b.Try) == 1 && b.Try[0].Space == Bigint {
			return tryBigint | single, []any{b.Try[0].ID}
		}
	}
	var (
		f    form
		args []any
	)
	add := func(part form, list string) {
		if list != "" {
			f |= part
			args = append(args, list)
		}
	}
	add(releaseBigint, arrayOf(b.Release, Bigint))
	add(releaseTwoInts, arrayOf(b.Release, TwoInts))
	add(tryBigint, arrayOf(b.Try, Bigint))
	add(tryTwoInts, arrayOf(b.Try, TwoInts))
	add(tryAny, arrayOfArrays(b.Any))
	return f, args
}

// arrayOf is the keys of one space as the text of a bigint[], "" for none.
func arrayOf(keys []Key, space Space) string {
	var text []byte
	for _, k := range keys {
		if k.Space != space {
			continue
		}
		if text == nil {
			text = make([]byte, 0, 21*len(keys)+2)
			text = append(text, '{')
		} else {
			text = append(text, ',')
		}
		text = strconv.AppendInt(text, k.ID, 10)
	}
	if text == nil {
		return ""
	}
	return string(append(text, '}'))
}

// arrayOfArrays is groups as the text of a text[] whose elements are each the
// text of a bigint[]: SQL has no arrays of arrays of different lengths.
func arrayOfArrays(groups [][]Key) string {
	if len(groups) == 0 {
		return ""
	}
	elements := make([]string, len(groups))
	for i, g := range groups {
		elements[i] = `"` + arrayOf(g, Bigint) + `"`
	}
	return "{" + strings.Join(elements, ",") + "}"
}

// A reply is the one row that comes back.
type reply struct {
	pid  int64
	list [5]string // a column for each of parts that the form has
	dest [6]any    // pointers to them, for Scan
}

func (r *reply) columns(f form) []any {
	dest := append(r.dest[:0], &r.pid)
	for i, part := range parts {
		if f&part.form != 0 {
			dest = append(dest, &r.list[i])
		}
	}
	return dest
}

// answer reads the reply to form f into b.
func (r *reply) answer(f form, b *Batch) error {
	for i, part := range parts {
		if f&part.form == 0 || r.list[i] == "{}" {
			continue
		}
		numbers, err := parseArray(r.list[i])
		if err != nil {
			return err
		}
		for _, n := range numbers {
			switch part.form {
			case releaseBigint:
				b.NotHeld = append(b.NotHeld, Key{Bigint, n})
			case releaseTwoInts:
				b.NotHeld = append(b.NotHeld, Key{TwoInts, n})
			case tryBigint:
				b.Busy = append(b.Busy, Key{Bigint, n})
			case tryTwoInts:
				b.Busy = append(b.Busy, Key{TwoInts, n})
			case tryAny:
				b.Won = append(b.Won, int(n)-1)
			}
		}
	}
	if len(b.Won) != len(b.Any) {
		return errNonsense
	}
	return nil
}

// parseArray reads the text of a bigint[].
func parseArray(text string) ([]int64, error) {
	inner, ok := strings.CutPrefix(text, "{")
	inner, ok2 := strings.CutSuffix(inner, "}")
	if !ok || !ok2 {
		return nil, errNonsense
	}
	var numbers []int64
	for item := range strings.SplitSeq(inner, ",") {
		n, err := strconv.ParseInt(item, 10, 64)
		if err != nil {
			return nil, errNonsense
		}
		numbers = append(numbers, n)
	}
	return numbers, nil
}
