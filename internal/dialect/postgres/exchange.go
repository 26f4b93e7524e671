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
	tryAny
	tryAll
	tryEach
	tryEachBounded // the same with keys beyond groups, or with many groups
	single         // the one part is one key, not an array: 10 to 15 µs cheaper

	spaces = 4 // with readers' locks
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
	// For each group the position of the key that was taken, 0 for none.
	part{tryAny, `ARRAY(SELECT coalesce((SELECT i FROM unnest(g::bigint[]) WITH ORDINALITY AS u(k, i)
			WHERE pg_try_advisory_lock(k) LIMIT 1), 0) FROM unnest(%N::text[]) g)::text`, ""},
	// For each set the position of the first key that was not free, before
	// which those that were taken are given back; 0 for none. Of a set, a, the
	// odd elements say which space the even ones are of.
	part{tryAll, `ARRAY(SELECT CASE WHEN missing = 0 THEN 0 ELSE missing + 0 * (
			SELECT count(CASE WHEN a[i] = 0 THEN pg_advisory_unlock(a[i + 1]) ELSE pg_advisory_unlock` + twoInts("a[i + 1]") + ` END)
			FROM generate_series(1, 2 * missing - 3, 2) AS i) END
		FROM (SELECT a, coalesce((SELECT (i + 1) / 2 FROM generate_series(1, cardinality(a), 2) AS i
			WHERE NOT CASE WHEN a[i] = 0 THEN pg_try_advisory_lock(a[i + 1]) ELSE pg_try_advisory_lock` + twoInts("a[i + 1]") + ` END LIMIT 1), 0) AS missing
			FROM (SELECT g::bigint[] AS a FROM unnest(%N::text[]) g OFFSET 0) AS sets OFFSET 0) AS v)::text`, ""},
	part{tryEach, eachLevels(), ""},
	part{tryEachBounded, inArray(eachSteps), ""})

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

// releases reports whether f releases keys.
func (f form) releases() bool { return f&(tryKeys-1) != 0 }

// query returns the statement of f. It names no key and returns one row. If it
// rings, and releases keys, the last column rings their bells.
func (f form) query(rings bool) string {
	columns := []string{"pg_backend_pid()"}
	var released []string
	for _, part := range parts {
		if f&part.form == 0 {
			continue
		}
		column, keys := part.array, releasedKeys
		if f&single != 0 {
			column, keys = part.single, releasedKey
		}
		parameter := "$" + strconv.Itoa(len(columns))
		columns = append(columns, strings.ReplaceAll(column, "%N", parameter))
		if part.form < tryKeys {
			released = append(released, strings.ReplaceAll(keys, "%N", parameter))
		}
	}
	if rings && f.releases() {
		columns = append(columns, ringColumn(released))
	}
	return "SELECT " + strings.Join(columns, ", ")
}

// formOf returns the form that b needs.
func formOf(b *dialect.Batch) (f form) {
	for _, k := range b.Release {
		f |= releaseKeys << k.Space
	}
	for _, k := range b.Try {
		f |= tryKeys << k.Space
	}
	if len(b.Any) > 0 {
		f |= tryAny
	}
	if len(b.All) > 0 {
		f |= tryAll
	}
	if len(b.Each) > 0 {
		f |= eachForm(b)
	}
	const bigint = (releaseKeys | tryKeys) * (1 | 1<<dialect.Shared)
	if len(b.Release)+len(b.Try) == 1 && f&bigint == f {
		f |= single
	}
	return f
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
		if f&single != 0 {
			done, err := boolOf(column)
			if err != nil {
				return err
			}
			if !done {
				keys, _ := keysOf(b, part.form)
				noteFailed(b, part.form, keys[0].ID)
			}
			continue
		}
		if part.form&(tryEach|tryEachBounded) != 0 {
			if err := readEach(eachOf(b, part.form), part.form, column); err != nil {
				return err
			}
			continue
		}
		numbers, err := parseArray(column)
		if err != nil {
			return err
		}
		for _, n := range numbers {
			switch part.form {
			case tryAny:
				b.Won = append(b.Won, int(n)-1)
			case tryAll:
				b.Missing = append(b.Missing, int(n)-1)
			default:
				noteFailed(b, part.form, n)
			}
		}
	}
	if !fits(b.Won, b.Any) || !fits(b.Missing, b.All) {
		return dialect.ErrNonsense
	}
	return nil
}

// fits reports whether each place is an index into its group, or -1.
func fits(places []int, groups [][]dialect.Key) bool {
	if len(places) != len(groups) {
		return false
	}
	for i, place := range places {
		if place < -1 || place >= len(groups[i]) {
			return false
		}
	}
	return true
}
