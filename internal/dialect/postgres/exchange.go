package postgres

import (
	"database/sql/driver"
	"strconv"
	"strings"

	"github.com/latchkey-go/latchkey/internal/dialect"
)

// A form is a shape of the statement that carries a batch. It says which parts
// the statement has. Each form in use is prepared once per session.
type form uint16

const (
	releaseKeys form = 1 << iota // of each Space in its order; and so the next
	_
	_
	_
	tryKeys
	_
	_
	_
	tryLooks
	tryLevels
	tryFirsts // the same with one key for each level
	trySets   // the same with many levels, or in the other space
	single    // the one part is one key, not an array: 10 to 15 µs cheaper

	spaces    = 4 // with readers' locks
	tryStacks = tryLevels | tryFirsts | trySets
)

// A part is a column of the statement's one row. %N stands for its parameter.
//
// With an array the column is the text of an array of the keys that failed,
// which is normally empty. With a single key the column says whether it
// succeeded. The executor computes the columns in order, so releases come
// first.
type part struct {
	form   form
	array  string
	single string // "" where there is none
}

var parts = append(keyParts(),
	part{tryLooks, looksQuery, ""},
	part{tryLevels, levelsQuery, ""},
	part{tryFirsts, firstsQuery, ""},
	part{trySets, setsQuery, ""})

// looksQuery is the part tryLooks. Each element of the parameter is a look, a:
// how many keys it wants, and for each key its space and its id. The response
// has for each look, one after the other, how many it has got, and their places,
// from 1.
var looksQuery = `ARRAY(SELECT unnest(cardinality(won) || won) FROM (
		SELECT ARRAY(SELECT i / 2 FROM generate_series(2, cardinality(a) - 1, 2) AS i
			WHERE CASE WHEN a[i] = 0 THEN pg_try_advisory_lock(a[i + 1]) ELSE pg_try_advisory_lock` + twoInts("a[i + 1]") + ` END LIMIT a[1]) AS won
		FROM (SELECT g::bigint[] AS a FROM unnest(%N::text[]) g OFFSET 0) AS q OFFSET 0) AS looks)::text`

// keyParts returns the parts for single keys of each Space.
//
// unnest is in a SELECT list, where the executor hands its rows on one by one.
// In FROM the executor would store all rows first.
func keyParts() (all []part) {
	for _, of := range []struct {
		form     form
		function string
	}{{releaseKeys, "pg_advisory_unlock"}, {tryKeys, "pg_try_advisory_lock"}} {
		for space := range dialect.Space(spaces) {
			function, key, one := of.function, "(k)", ""
			if space&dialect.Shared != 0 {
				function += "_shared"
			}
			if space&dialect.TwoInts != 0 {
				key = twoInts("k")
			} else {
				one = function + "(%N::bigint)"
			}
			all = append(all, part{of.form << space,
				`ARRAY(SELECT k FROM (SELECT unnest(%N::bigint[]) AS k) AS u WHERE NOT ` + function + key + `)::text`, one})
		}
	}
	return all
}

// twoInts returns the arguments of a function for two integers. id is an SQL
// expression for the ID of a Key.
func twoInts(id string) string { return "((" + id + " >> 32)::int, ((" + id + " << 32) >> 32)::int)" }

// query returns the statement of f. It names no key and returns one row.
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

// formOf returns the form that b needs. ok is false if b needs several
// statements.
func formOf(b *dialect.Batch) (f form, ok bool) {
	f, ok = stackPart(b)
	for _, k := range b.Release {
		f |= releaseKeys << k.Space
	}
	for _, k := range b.Try {
		f |= tryKeys << k.Space
	}
	if len(b.Looks) > 0 {
		f |= tryLooks
	}
	const bigint = (releaseKeys | tryKeys) * (1 | 1<<dialect.Shared)
	if len(b.Release)+len(b.Try) == 1 && f&bigint == f {
		f |= single
	}
	return f, ok
}

// keysOf returns the keys of b for a part, and their Space.
func keysOf(b *dialect.Batch, part form) (keys []dialect.Key, of dialect.Space) {
	for of = range dialect.Space(spaces) {
		switch part {
		case releaseKeys << of:
			return b.Release, of
		case tryKeys << of:
			return b.Try, of
		}
	}
	return nil, dialect.Bigint
}

// noteFailed notes in b that the key with id was not given back or not taken.
func noteFailed(b *dialect.Batch, part form, id int64) {
	_, of := keysOf(b, part)
	if part < tryKeys {
		b.NotHeld = append(b.NotHeld, dialect.Key{Space: of, ID: id})
	} else {
		b.Busy = append(b.Busy, dialect.Key{Space: of, ID: id})
	}
}

// readResponse reads a row of form f into b. The row begins after the process
// id.
func readResponse(b *dialect.Batch, f form, row []driver.Value) error {
	for _, part := range parts {
		if f&part.form == 0 {
			continue
		}
		column := row[0]
		row = row[1:]
		if err := readPart(b, f, part.form, column); err != nil {
			return err
		}
	}
	return nil
}

// readPart reads the column of one part.
func readPart(b *dialect.Batch, f, part form, column driver.Value) error {
	switch {
	case f&single != 0:
		done, err := boolOf(column)
		if err == nil && !done {
			keys, _ := keysOf(b, part)
			noteFailed(b, part, keys[0].ID)
		}
		return err
	case part&tryStacks != 0:
		return readStacks(b.Stacks, part, column)
	}
	numbers, err := parseArray(column)
	if err != nil {
		return err
	}
	if part == tryLooks {
		return readLooks(b.Looks, numbers)
	}
	for _, n := range numbers {
		noteFailed(b, part, n)
	}
	return nil
}

// readLooks reads the response of the part tryLooks.
func readLooks(looks []dialect.Look, numbers []int64) error {
	for i := range looks {
		l := &looks[i]
		if len(numbers) == 0 || numbers[0] < 0 || numbers[0] > int64(min(l.Want, len(numbers)-1)) {
			return dialect.ErrNonsense
		}
		n := int(numbers[0])
		before := -1
		for _, place := range numbers[1 : 1+n] {
			if place < 1 || place > int64(len(l.Keys)) || int(place)-1 <= before {
				return dialect.ErrNonsense
			}
			before = int(place) - 1
			l.Won = append(l.Won, before)
		}
		numbers = numbers[1+n:]
	}
	if len(numbers) > 0 {
		return dialect.ErrNonsense
	}
	return nil
}
