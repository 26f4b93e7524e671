package postgres

import (
	"database/sql/driver"
	"strconv"
	"strings"

	"github.com/latchkey-go/latchkey/internal/dialect"
)

// The parts of the statement that carry stacks. A batch uses one of them. Its
// parameter a is one array. The response has nothing for a stack that got the
// first key of each level, as most do.

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
var levelsQuery = inArray(`ARRAY(SELECT unnest(CASE
		WHEN w4 > 0 THEN ARRAY[r, w1 - a[8*r-6], w2 - a[8*r-4], w3 - a[8*r-2], w4 - a[8*r]]
		WHEN CASE WHEN w1 > 1 THEN pg_advisory_unlock(a[w1]) ELSE true END
			AND CASE WHEN w2 > 1 THEN pg_advisory_unlock(a[w2]) ELSE true END
			AND CASE WHEN w3 > 1 THEN pg_advisory_unlock(a[w3]) ELSE true END
			THEN ARRAY[-r, 1 + (w1 > 0)::int + (w2 > 0)::int + (w3 > 0)::int, 0, 0, 0] END)
	FROM (SELECT *, CASE WHEN w3 = 0 THEN 0 WHEN a[8*r] = 0 THEN 1
			WHEN pg_try_advisory_lock(a[a[8*r]]) THEN a[8*r] WHEN a[8*r] = a[8*r+1] THEN 0
			ELSE coalesce((SELECT i FROM (SELECT generate_series(a[8*r] + 1, a[8*r+1]) AS i) AS c WHERE pg_try_advisory_lock(a[i]) LIMIT 1), 0) END AS w4
		FROM (SELECT *, CASE WHEN w2 = 0 THEN 0 WHEN a[8*r-2] = 0 THEN 1
				WHEN pg_try_advisory_lock(a[a[8*r-2]]) THEN a[8*r-2] WHEN a[8*r-2] = a[8*r-1] THEN 0
				ELSE coalesce((SELECT i FROM (SELECT generate_series(a[8*r-2] + 1, a[8*r-1]) AS i) AS c WHERE pg_try_advisory_lock(a[i]) LIMIT 1), 0) END AS w3
			FROM (SELECT *, CASE WHEN w1 = 0 THEN 0 WHEN a[8*r-4] = 0 THEN 1
					WHEN pg_try_advisory_lock(a[a[8*r-4]]) THEN a[8*r-4] WHEN a[8*r-4] = a[8*r-3] THEN 0
					ELSE coalesce((SELECT i FROM (SELECT generate_series(a[8*r-4] + 1, a[8*r-3]) AS i) AS c WHERE pg_try_advisory_lock(a[i]) LIMIT 1), 0) END AS w2
				FROM (SELECT *, CASE
						WHEN pg_try_advisory_lock(a[a[8*r-6]]) THEN a[8*r-6] WHEN a[8*r-6] = a[8*r-5] THEN 0
						ELSE coalesce((SELECT i FROM (SELECT generate_series(a[8*r-6] + 1, a[8*r-5]) AS i) AS c WHERE pg_try_advisory_lock(a[i]) LIMIT 1), 0) END AS w1
					FROM (SELECT generate_series(1, a[1]) AS r) AS q1 OFFSET 0) AS q2 OFFSET 0) AS q3 OFFSET 0) AS q4 OFFSET 0) AS levels
	WHERE NOT (w1 = a[8*r-6] AND w2 = greatest(a[8*r-4], 1) AND w3 = greatest(a[8*r-2], 1) AND w4 = greatest(a[8*r], 1)))::text`)

// firstsQuery is the part tryFirsts, for stacks with one key for each level,
// which needs no subquery. a begins with the number of stacks. For each stack
// there follow the number of its levels, and a key for each of maxLevels. The
// response has a number for each stack that has failed: maxLevels + 1 times the
// stack's number, from 1, plus the number of the level, from 1.
var firstsQuery = inArray(`ARRAY(SELECT 5*r + failed FROM (SELECT r, CASE
			WHEN NOT pg_try_advisory_lock(a[5*r-2]) THEN 1
			WHEN a[5*r-3] = 1 THEN 0
			WHEN NOT pg_try_advisory_lock(a[5*r-1]) THEN CASE WHEN pg_advisory_unlock(a[5*r-2]) THEN 2 END
			WHEN a[5*r-3] = 2 THEN 0
			WHEN NOT pg_try_advisory_lock(a[5*r]) THEN CASE WHEN pg_advisory_unlock(a[5*r-2]) AND pg_advisory_unlock(a[5*r-1]) THEN 3 END
			WHEN a[5*r-3] = 3 THEN 0
			WHEN NOT pg_try_advisory_lock(a[5*r+1]) THEN CASE WHEN pg_advisory_unlock(a[5*r-2]) AND pg_advisory_unlock(a[5*r-1]) AND pg_advisory_unlock(a[5*r]) THEN 4 END
			ELSE 0 END AS failed
		FROM (SELECT generate_series(1, a[1]) AS r) AS q OFFSET 0) AS e
	WHERE failed IS DISTINCT FROM 0)::text`)

// inArray replaces a by the parameter.
func inArray(query string) string { return strings.ReplaceAll(query, "a[", "(%N::bigint[])[") }

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

// stackPart returns the part that carries the stacks of b, or 0 if there are
// none. ok is false if no part carries all of them.
func stackPart(b *dialect.Batch) (part form, ok bool) {
	few, single := true, true
	for i := range b.Stacks {
		few = few && len(b.Stacks[i].Levels) <= maxLevels
		for _, keys := range b.Stacks[i].Levels {
			few, single = few && keys[0].Space == dialect.Bigint, single && len(keys) == 1
		}
	}
	switch {
	case len(b.Stacks) == 0:
		return 0, true
	case few && single:
		return tryFirsts, true
	case few:
		return tryLevels, true
	}
	return trySets, single
}

// appendStacks appends the parameter of a part.
func appendStacks(text []byte, stacks []dialect.Stack, part form) []byte {
	text = append(text, '{')
	if part != trySets {
		text = appendNumber(text, int64(len(stacks)))
	}
	at := int64(1 + 2*maxLevels*len(stacks)) // of the next key of tryLevels, from 0
	for i := range stacks {
		s := &stacks[i]
		switch part {
		case trySets:
			text = append(appendSet(append(text, '"'), s), `",`...)
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
	}
	for i := range stacks {
		for _, keys := range stacks[i].Levels {
			for _, k := range keys {
				if part == tryLevels {
					text = appendNumber(text, k.ID)
				}
			}
		}
	}
	return closeArray(text)
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
func readStacks(stacks []dialect.Stack, part form, column driver.Value) error {
	numbers, err := parseArray(column)
	if err != nil {
		return err
	}
	for i := range stacks {
		s := &stacks[i]
		s.Failed, s.Won = -1, s.Won[:0]
		for range s.Levels {
			s.Won = append(s.Won, 0)
		}
	}
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

func readSets(stacks []dialect.Stack, numbers []int64) error {
	if len(numbers) != len(stacks) {
		return dialect.ErrNonsense
	}
	for i, n := range numbers {
		if n == 0 {
			continue
		}
		if err := fail(&stacks[i], n); err != nil {
			return err
		}
	}
	return nil
}

func readFirsts(stacks []dialect.Stack, numbers []int64) error {
	for _, n := range numbers {
		r := n / (maxLevels + 1)
		if r < 1 || r > int64(len(stacks)) {
			return dialect.ErrNonsense
		}
		if err := fail(&stacks[r-1], n%(maxLevels+1)); err != nil {
			return err
		}
	}
	return nil
}

func readLevels(stacks []dialect.Stack, numbers []int64) error {
	for ; len(numbers) > maxLevels; numbers = numbers[1+maxLevels:] {
		r, failed := numbers[0], false
		if r < 0 {
			r, failed = -r, true
		}
		if r < 1 || r > int64(len(stacks)) {
			return dialect.ErrNonsense
		}
		s := &stacks[r-1]
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
