package postgres

import (
	"database/sql/driver"
	"strconv"
	"strings"

	"github.com/latchkey-go/latchkey/internal/dialect"
)

// The parts of the statement that carry stacks. In each of them the parameter a
// is one array. The response has nothing for a stack that got the first key of
// each level, as most do.

// maxLevels is how many levels a stack may have in the parts tryLevels and
// tryFirsts.
const maxLevels = 4

// levelsQuery is the part tryLevels. a begins with the number of stacks. For
// each stack there follow, for each of maxLevels, the positions of its first and
// its last key in a; 0 where the stack has no such level. The keys follow.
//
// A level is a subquery of the next one: it takes a key if the level before it
// did. w1 to w4 are the positions of the keys that were taken, 0 for none, and
// 1 for a level that the stack does not have. A stack that has failed gives back
// what it has.
//
// The response has five numbers for a stack. They are its number, from 1, and
// how far behind the first key of each level the key is that was taken. Of a
// stack that has failed the number is negative, and the level that has failed
// follows.
func levelsQuery() string {
	query, first, back, got, failed := "SELECT generate_series(1, a[1]) AS r", "", "", "", "1"
	for level := 1; level <= maxLevels; level++ {
		w, before := "w"+strconv.Itoa(level), "w"+strconv.Itoa(level-1)
		from, to := "a[8*r-8+"+strconv.Itoa(2*level)+"]", "a[8*r-7+"+strconv.Itoa(2*level)+"]"
		take := " WHEN " + from + " = 0 THEN 1 WHEN pg_try_advisory_lock(a[" + from + "]) THEN " + from + " WHEN " + from + " = " + to + " THEN 0" +
			" ELSE coalesce((SELECT i FROM (SELECT generate_series(" + from + " + 1, " + to + ") AS i) AS c WHERE pg_try_advisory_lock(a[i]) LIMIT 1), 0) END AS " + w
		if level == 1 {
			take = "CASE" + take
		} else {
			take = "CASE WHEN " + before + " = 0 THEN 0" + take
			first, got, back = first+" AND ", got+", ", back+" AND "
		}
		query = "SELECT *, " + take + " FROM (" + query + ") AS q" + strconv.Itoa(level) + " OFFSET 0"
		first += w + " = greatest(" + from + ", 1)"
		got += w + " - " + from
		back += "CASE WHEN " + w + " > 1 THEN pg_advisory_unlock(a[" + w + "]) ELSE true END"
		failed += " + (" + w + " > 0)::int"
	}
	return inArray("ARRAY(SELECT unnest(CASE WHEN w" + strconv.Itoa(maxLevels) + " > 0 THEN ARRAY[r, " + got + "] WHEN " + back +
		" THEN ARRAY[-r, " + failed + ", 0, 0, 0] END) FROM (" + query + ") AS levels WHERE NOT (" + first + "))::text")
}

// firstsQuery is the part tryFirsts, for stacks with one key for each level,
// which needs no subquery. a begins with the number of stacks. For each stack
// there follow the number of its levels, and a key for each of maxLevels. The
// response has a number for each stack that has failed: maxLevels + 1 times the
// stack's number, from 1, plus the number of the level, from 1.
func firstsQuery() string {
	key := func(level int) string { return "(a[5*r-3+" + strconv.Itoa(level) + "])" }
	cases, back := "", ""
	for level := 1; level <= maxLevels; level++ {
		failed := strconv.Itoa(level)
		if level > 1 {
			cases += " WHEN a[5*r-3] = " + strconv.Itoa(level-1) + " THEN 0"
			failed = "CASE WHEN " + back + " THEN " + failed + " END"
			back += " AND "
		}
		cases += " WHEN NOT pg_try_advisory_lock" + key(level) + " THEN " + failed
		back += "pg_advisory_unlock" + key(level)
	}
	return inArray("ARRAY(SELECT 5*r + failed FROM (SELECT r, CASE" + cases + " ELSE 0 END AS failed FROM (SELECT generate_series(1, a[1]) AS r) AS q OFFSET 0) AS e" +
		" WHERE failed IS DISTINCT FROM 0)::text")
}

// setsQuery is the part trySets, for stacks with one key for each of any number
// of levels, in either space. Each element of the parameter is a stack, a: its
// odd elements say which space the even ones are of. The response has for each
// stack the number of the level that has failed, from 1, before which those that
// were taken are given back; 0 for none.
var setsQuery = `ARRAY(SELECT CASE WHEN missing = 0 THEN 0 ELSE missing + 0 * (
			SELECT count(CASE WHEN a[i] = 0 THEN pg_advisory_unlock(a[i + 1]) ELSE pg_advisory_unlock` + twoInts("a[i + 1]") + ` END)
			FROM generate_series(1, 2 * missing - 3, 2) AS i) END
		FROM (SELECT a, coalesce((SELECT (i + 1) / 2 FROM generate_series(1, cardinality(a), 2) AS i
			WHERE NOT CASE WHEN a[i] = 0 THEN pg_try_advisory_lock(a[i + 1]) ELSE pg_try_advisory_lock` + twoInts("a[i + 1]") + ` END LIMIT 1), 0) AS missing
			FROM (SELECT g::bigint[] AS a FROM unnest(%N::text[]) g OFFSET 0) AS sets OFFSET 0) AS v)::text`

// inArray replaces a by the parameter.
func inArray(query string) string { return strings.ReplaceAll(query, "a[", "(%N::bigint[])[") }

// stackForm returns the part that carries s, or 0: no part does.
func stackForm(s *dialect.Stack) form {
	single, bigint := true, true
	for _, keys := range s.Levels {
		single = single && len(keys) == 1
		bigint = bigint && keys[0].Space == dialect.Bigint
	}
	switch few := len(s.Levels) <= maxLevels && bigint; {
	case few && single:
		return tryFirsts
	case few:
		return tryLevels
	case single:
		return trySets
	}
	return 0
}

// stackForms returns the parts that carry the stacks of b. ok is false if some
// stack needs several statements. A batch with stacks of both kinds for few
// levels has tryLevels alone.
func stackForms(b *dialect.Batch) (parts form, ok bool) {
	for i := range b.Stacks {
		part := stackForm(&b.Stacks[i])
		if part == 0 {
			return 0, false
		}
		parts |= part
	}
	if parts&tryLevels != 0 {
		parts &^= tryFirsts
	}
	return parts, true
}

// stacksOf calls f with each stack of b that a part of f carries.
func stacksOf(b *dialect.Batch, part, all form, f func(*dialect.Stack)) {
	for i := range b.Stacks {
		of := stackForm(&b.Stacks[i])
		if of == tryFirsts && all&tryLevels != 0 {
			of = tryLevels
		}
		if of == part {
			f(&b.Stacks[i])
		}
	}
}

// appendStacks appends the parameter of a part.
func appendStacks(text []byte, b *dialect.Batch, part, all form) []byte {
	n := 0
	stacksOf(b, part, all, func(*dialect.Stack) { n++ })
	text = append(text, '{')
	if part != trySets {
		text = appendNumber(text, int64(n))
	}
	at := int64(1 + 2*maxLevels*n) // of the next key of tryLevels, from 0
	stacksOf(b, part, all, func(s *dialect.Stack) {
		switch part {
		case trySets:
			text = appendSet(append(text, '"'), s)
			text = append(text, `",`...)
		case tryFirsts:
			text = appendNumber(text, int64(len(s.Levels)))
			for level := range maxLevels {
				text = appendNumber(text, firstKey(s, level))
			}
		case tryLevels:
			for level := range maxLevels {
				first, last := int64(0), int64(0)
				if level < len(s.Levels) {
					first, last = at+1, at+int64(len(s.Levels[level]))
					at = last
				}
				text = appendNumber(appendNumber(text, first), last)
			}
		}
	})
	if part == tryLevels {
		stacksOf(b, part, all, func(s *dialect.Stack) {
			for _, keys := range s.Levels {
				for _, k := range keys {
					text = appendNumber(text, k.ID)
				}
			}
		})
	}
	return endArray(text)
}

func appendNumber(text []byte, n int64) []byte { return append(strconv.AppendInt(text, n, 10), ',') }

// firstKey returns the key of a level with one, or 0 where s has no such level.
func firstKey(s *dialect.Stack, level int) int64 {
	if level < len(s.Levels) {
		return s.Levels[level][0].ID
	}
	return 0
}

// readStacks reads the response of a part.
func readStacks(b *dialect.Batch, part, all form, column driver.Value) error {
	numbers, err := parseArray(column)
	if err != nil {
		return err
	}
	var stacks []*dialect.Stack
	stacksOf(b, part, all, func(s *dialect.Stack) {
		s.Failed, s.Won = -1, s.Won[:0]
		for range s.Levels {
			s.Won = append(s.Won, 0)
		}
		stacks = append(stacks, s)
	})
	switch part {
	case trySets:
		return readSets(stacks, numbers)
	case tryFirsts:
		return readFirsts(stacks, numbers)
	}
	return readLevels(stacks, numbers)
}

// fail notes that a level of s, from 1, has failed.
func fail(s *dialect.Stack, level int64) error {
	if level < 1 || level > int64(len(s.Levels)) {
		return dialect.ErrNonsense
	}
	s.Failed = int(level) - 1
	return nil
}

func readSets(stacks []*dialect.Stack, numbers []int64) error {
	if len(numbers) != len(stacks) {
		return dialect.ErrNonsense
	}
	for i, n := range numbers {
		if n == 0 {
			continue
		}
		if err := fail(stacks[i], n); err != nil {
			return err
		}
	}
	return nil
}

func readFirsts(stacks []*dialect.Stack, numbers []int64) error {
	for _, n := range numbers {
		r := n / (maxLevels + 1)
		if r < 1 || r > int64(len(stacks)) {
			return dialect.ErrNonsense
		}
		if err := fail(stacks[r-1], n%(maxLevels+1)); err != nil {
			return err
		}
	}
	return nil
}

func readLevels(stacks []*dialect.Stack, numbers []int64) error {
	for ; len(numbers) > maxLevels; numbers = numbers[1+maxLevels:] {
		r, failed := numbers[0], false
		if r < 0 {
			r, failed = -r, true
		}
		if r < 1 || r > int64(len(stacks)) {
			return dialect.ErrNonsense
		}
		s := stacks[r-1]
		if failed {
			if err := fail(s, numbers[1]); err != nil {
				return err
			}
			continue
		}
		for level, keys := range s.Levels {
			behind := numbers[1+level]
			if behind < 0 || behind >= int64(len(keys)) {
				return dialect.ErrNonsense
			}
			s.Won[level] = int(behind)
		}
	}
	if len(numbers) > 0 {
		return dialect.ErrNonsense
	}
	return nil
}
