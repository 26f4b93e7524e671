package dialect

import (
	"database/sql/driver"
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

	forms = single << 1 // how many there are
)

// A part of the statement is a column of its one row. With an array for its
// parameter, %N, it is the text of an array of losers, normally none; with a
// single key, whether that was done. The executor computes the columns of a row
// in order, so releases come first.
//
// unnest stands in a SELECT list, where the executor hands its rows on one by
// one: in FROM it would store them all first.
var parts = [...]struct {
	form   form
	array  string
	single string
}{
	{releaseBigint,
		`ARRAY(SELECT k FROM (SELECT unnest(%N::bigint[]) AS k) AS u WHERE NOT pg_advisory_unlock(k))::text`,
		`pg_advisory_unlock(%N::bigint)`},
	{releaseTwoInts,
		`ARRAY(SELECT k FROM (SELECT unnest(%N::bigint[]) AS k) AS u WHERE NOT pg_advisory_unlock((k >> 32)::int, ((k << 32) >> 32)::int))::text`, ""},
	{tryBigint,
		`ARRAY(SELECT k FROM (SELECT unnest(%N::bigint[]) AS k) AS u WHERE NOT pg_try_advisory_lock(k))::text`,
		`pg_try_advisory_lock(%N::bigint)`},
	{tryTwoInts,
		`ARRAY(SELECT k FROM (SELECT unnest(%N::bigint[]) AS k) AS u WHERE NOT pg_try_advisory_lock((k >> 32)::int, ((k << 32) >> 32)::int))::text`, ""},
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

// formOf chooses the form that b needs.
func formOf(b *Batch) (f form) {
	for _, k := range b.Release {
		f |= releaseBigint << k.Space
	}
	for _, k := range b.Try {
		f |= tryBigint << k.Space
	}
	if len(b.Any) > 0 {
		f |= tryAny
	}
	if len(b.Release)+len(b.Try) == 1 && (f == releaseBigint || f == tryBigint) {
		f |= single
	}
	return f
}

// keysOf is the keys of b that part is about.
func (b *Batch) keysOf(part form) (keys []Key, of Space) {
	switch part {
	case releaseBigint:
		return b.Release, Bigint
	case releaseTwoInts:
		return b.Release, TwoInts
	case tryBigint:
		return b.Try, Bigint
	case tryTwoInts:
		return b.Try, TwoInts
	}
	return nil, Bigint
}

// lost notes that b's key id of part was not given back or not taken.
func (b *Batch) lost(part form, id int64) {
	switch part {
	case releaseBigint:
		b.NotHeld = append(b.NotHeld, Key{Bigint, id})
	case releaseTwoInts:
		b.NotHeld = append(b.NotHeld, Key{TwoInts, id})
	case tryBigint:
		b.Busy = append(b.Busy, Key{Bigint, id})
	case tryTwoInts:
		b.Busy = append(b.Busy, Key{TwoInts, id})
	}
}

// answer reads the row that came back for form f into b: the columns after the
// first.
func (b *Batch) answer(f form, row []driver.Value) error {
	for _, part := range parts {
		if f&part.form == 0 {
			continue
		}
		column := row[0]
		row = row[1:]
		if f&single != 0 {
			done, err := boolOf(column)
			if err != nil {
				return err
			}
			if !done {
				keys, _ := b.keysOf(part.form)
				b.lost(part.form, keys[0].ID)
			}
			continue
		}
		numbers, err := parseArray(column)
		if err != nil {
			return err
		}
		for _, n := range numbers {
			if part.form == tryAny {
				b.Won = append(b.Won, int(n)-1)
			} else {
				b.lost(part.form, n)
			}
		}
	}
	if len(b.Won) != len(b.Any) {
		return errNonsense
	}
	return nil
}
