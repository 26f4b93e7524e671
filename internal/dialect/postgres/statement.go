package postgres

import (
	"slices"
	"strconv"
	"strings"

	"github.com/latchkey-go/latchkey/internal/dialect"
)

// A form is a shape of the statement that carries a batch: the parts that it
// has. Each form in use is prepared once per session.
type form uint8

const (
	releaseKeys form = 1 << iota
	tryKeys
	tryLooks
	tryStacks
	tryPlainStacks
	single // the one part is one exclusive key of the bigint space, not an array: 10 to 15 µs cheaper
	plain  // all released and tried keys are exclusive ones of the bigint space: about 10 µs cheaper
)

// A part is a column of the statement's one row. %N stands for its parameter.
//
// With an array the column is the text of an array of numbers. With a single
// key the column says whether it succeeded. The executor computes the columns in
// order, so releases come first.
type part struct {
	form   form
	array  string
	plain  string // array, if its parameter has ids alone; "" where there is none
	single string // "" where there is none

	text func(text []byte, b *dialect.Batch, f form) []byte // appends the parameter for array or plain
	read func(b *dialect.Batch, numbers []int64) error      // reads the column of array or plain
}

var parts = []part{
	{releaseKeys, keysQuery("pg_advisory_unlock"), plainQuery("pg_advisory_unlock"), "pg_advisory_unlock(%N::bigint)", appendReleases, readReleases},
	{tryKeys, keysQuery("pg_try_advisory_lock"), plainQuery("pg_try_advisory_lock"), "pg_try_advisory_lock(%N::bigint)", appendTries, readTries},
	{tryLooks, looksQuery, "", "", appendLooks, readLooks},
	{tryStacks, stacksQuery, "", "", appendStacks, readStacks},
	{tryPlainStacks, plainStacksQuery, "", "", appendPlainStacks, readPlainStacks},
}

// keysQuery returns the part that calls function for keys. The parameter has two
// elements for each key: its space and its id. The response has the places,
// from 1, of the keys for which the function returns false.
func keysQuery(function string) string {
	return onArray(`ARRAY(SELECT i / 2 FROM (SELECT generate_series(2, cardinality(a), 2) AS i) AS keys WHERE NOT ` + onKey(function) + `)::text`)
}

// plainQuery is keysQuery for a parameter of ids alone, of exclusive keys of the
// bigint space.
func plainQuery(function string) string {
	return onArray(`ARRAY(SELECT i FROM (SELECT generate_series(1, cardinality(a)) AS i) AS keys WHERE NOT ` + function + `(a[i]))::text`)
}

// onArray returns query with the parameter in place of a.
func onArray(query string) string {
	return strings.NewReplacer("a[", "(%N::bigint[])[", "(a)", "(%N::bigint[])").Replace(query)
}

// looksQuery is the part tryLooks. Each element of the parameter is a look, a:
// how many keys it wants, and for each key its space and its id. The response
// has for each look, one after the other, how many it has got, and their places,
// from 1.
var looksQuery = `ARRAY(SELECT unnest(cardinality(won) || won) FROM (
		SELECT ARRAY(SELECT i / 2 FROM generate_series(3, cardinality(a), 2) AS i WHERE ` + onKey("pg_try_advisory_lock") + ` LIMIT a[1]) AS won
		FROM (SELECT g::bigint[] AS a FROM unnest(%N::text[]) g OFFSET 0) AS q OFFSET 0) AS looks)::text`

// stacksQuery is the part tryStacks. Each element of the parameter is a stack,
// a: for each key its level, from 1, its space and its id.
//
// It takes a key of level n if it has one of each level before. A stack that has
// not got a key of each level gives back what it has. The response has for each
// stack, one after the other, of how many levels it has got a key, and the
// places of these keys in the stack, from 1.
var stacksQuery = `ARRAY(SELECT unnest(cardinality(won) || won) FROM (
		SELECT CASE WHEN cardinality(taken) = a[cardinality(a) - 2] THEN ARRAY(SELECT i / 3 FROM unnest(taken) AS i)
			ELSE ARRAY(SELECT i / 3 FROM unnest(taken) AS i WHERE ` + onKey("pg_advisory_unlock") + `) END AS won
		FROM (SELECT a, ARRAY(
				WITH RECURSIVE levels (n, key) AS (SELECT 0, 0 UNION ALL
					SELECT n + 1, (SELECT i FROM generate_series(3, cardinality(a), 3) AS i
						WHERE CASE WHEN a[i - 2] = n + 1 THEN ` + onKey("pg_try_advisory_lock") + ` END LIMIT 1)
					FROM levels WHERE key IS NOT NULL AND n < a[cardinality(a) - 2])
				SELECT key FROM levels WHERE key > 0) AS taken
			FROM (SELECT g::bigint[] AS a FROM unnest(%N::text[]) g OFFSET 0) AS q OFFSET 0) AS v OFFSET 0) AS stacks)::text`

// plainStacksQuery is stacksQuery for stacks with one exclusive key of the bigint
// space for each level, and the same number of levels. It takes about half of the
// time. The parameter has the number of levels, and the ids of each stack. The
// response has for each stack the level, from 1, whose key was not free, or 0.
var plainStacksQuery = onArray(`ARRAY(SELECT coalesce(failed + 0 * (SELECT count(pg_advisory_unlock(a[at + i])) FROM generate_series(0, failed - 2) AS i), 0)
		FROM (SELECT at, (SELECT i FROM generate_series(1, a[1]) AS i WHERE NOT pg_try_advisory_lock(a[at + i - 1]) LIMIT 1) AS failed
			FROM (SELECT generate_series(2, cardinality(a), a[1]) AS at) AS q OFFSET 0) AS stacks)::text`)

// onKey returns the call of a function of advisory locks for the key whose id is
// a[i], and whose space is the element before.
func onKey(function string) string {
	const twoInts = "((a[i] >> 32)::int, ((a[i] << 32) >> 32)::int)"
	return "CASE a[i - 1] WHEN 0 THEN " + function + "(a[i]) WHEN 1 THEN " + function + twoInts +
		" WHEN 2 THEN " + function + "_shared(a[i]) ELSE " + function + "_shared" + twoInts + " END"
}

// query returns the statement of f. It names no key and returns one row.
func (f form) query() string {
	columns := []string{"pg_backend_pid()"}
	for _, part := range parts {
		if f&part.form == 0 {
			continue
		}
		column := part.array
		switch {
		case f&single != 0:
			column = part.single
		case f&plain != 0 && part.plain != "":
			column = part.plain
		}
		columns = append(columns, strings.ReplaceAll(column, "%N", "$"+strconv.Itoa(len(columns))))
	}
	return "SELECT " + strings.Join(columns, ", ")
}

// formOf returns the form that b needs.
func formOf(b *dialect.Batch) (f form) {
	for part, n := range [...]int{len(b.Release), len(b.Try), len(b.Looks), len(b.Stacks)} {
		if n > 0 {
			f |= releaseKeys << part
		}
	}
	if n := len(b.Stacks); n > 0 && !slices.ContainsFunc(b.Stacks, func(s dialect.Stack) bool { return !isPlain(s, len(b.Stacks[0].Levels)) }) {
		f ^= tryStacks | tryPlainStacks
	}
	other := func(k dialect.Key) bool { return k.Space != dialect.Bigint }
	switch n := len(b.Release) + len(b.Try); {
	case n == 0 || slices.ContainsFunc(b.Release, other) || slices.ContainsFunc(b.Try, other):
	case n == 1 && f < tryLooks:
		f |= single
	default:
		f |= plain
	}
	return f
}

// isPlain reports whether s has so many levels, each of one exclusive key of the
// bigint space.
func isPlain(s dialect.Stack, levels int) bool {
	for _, keys := range s.Levels {
		if len(keys) != 1 || keys[0].Space != dialect.Bigint {
			return false
		}
	}
	return len(s.Levels) == levels
}

// singleKey returns the one key of b.
func singleKey(b *dialect.Batch) dialect.Key {
	if len(b.Release) > 0 {
		return b.Release[0]
	}
	return b.Try[0]
}

// readResponse reads the columns of a response of form f into b.
func readResponse(b *dialect.Batch, f form, columns []string) error {
	for _, part := range parts {
		if f&part.form == 0 {
			continue
		}
		numbers, err := numbersOf(columns[0], f)
		if err == nil {
			err = part.read(b, numbers)
		}
		if err != nil {
			return err
		}
		columns = columns[1:]
	}
	return nil
}

// numbersOf returns the numbers of a column. A single key that has failed is at
// the first place.
func numbersOf(column string, f form) ([]int64, error) {
	if f&single == 0 {
		return parseArray(column)
	}
	switch done, err := strconv.ParseBool(column); {
	case err != nil:
		return nil, dialect.ErrNonsense
	case done:
		return nil, nil
	}
	return []int64{1}, nil
}

func readReleases(b *dialect.Batch, places []int64) error {
	b.NotHeld = len(places) > 0
	return nil
}

func readTries(b *dialect.Batch, places []int64) error {
	for _, place := range places {
		if place < 1 || place > int64(len(b.Try)) {
			return dialect.ErrNonsense
		}
		b.Busy = append(b.Busy, b.Try[place-1])
	}
	return nil
}

func readLooks(b *dialect.Batch, numbers []int64) error {
	for i := range b.Looks {
		places, rest, err := cutPlaces(numbers)
		if err != nil {
			return err
		}
		for _, place := range places {
			if !b.Looks[i].Take(int(place) - 1) {
				return dialect.ErrNonsense
			}
		}
		numbers = rest
	}
	return noMore(numbers)
}

func readStacks(b *dialect.Batch, numbers []int64) error {
	for i := range b.Stacks {
		s := &b.Stacks[i]
		places, rest, err := cutPlaces(numbers)
		if err != nil || len(places) > len(s.Levels) {
			return dialect.ErrNonsense
		}
		s.Won, s.Failed = s.Won[:0], -1
		if len(places) < len(s.Levels) {
			s.Failed = len(places)
		}
		before := int64(1) // the place of the first key of a level
		for level, place := range places {
			keys := int64(len(s.Levels[level]))
			if place < before || place >= before+keys {
				return dialect.ErrNonsense
			}
			s.Won = append(s.Won, int(place-before))
			before += keys
		}
		numbers = rest
	}
	return noMore(numbers)
}

func readPlainStacks(b *dialect.Batch, failed []int64) error {
	if len(failed) != len(b.Stacks) {
		return dialect.ErrNonsense
	}
	for i := range b.Stacks {
		s, levels := &b.Stacks[i], len(b.Stacks[i].Levels)
		if failed[i] < 0 || failed[i] > int64(levels) {
			return dialect.ErrNonsense
		}
		s.Won, s.Failed = s.Won[:0], int(failed[i])-1
		for range levels {
			s.Won = append(s.Won, 0)
		}
	}
	return nil
}

// cutPlaces cuts a list with its length before it from the beginning of numbers.
func cutPlaces(numbers []int64) (places, rest []int64, err error) {
	if len(numbers) == 0 || numbers[0] < 0 || numbers[0] >= int64(len(numbers)) {
		return nil, nil, dialect.ErrNonsense
	}
	n := 1 + int(numbers[0])
	return numbers[1:n], numbers[n:], nil
}

func noMore(numbers []int64) error {
	if len(numbers) > 0 {
		return dialect.ErrNonsense
	}
	return nil
}
