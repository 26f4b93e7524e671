package postgres

import (
	"database/sql/driver"
	"slices"
	"strconv"
	"strings"

	"github.com/latchkey-go/latchkey/internal/dialect"
)

// The parts of the statement for Batch.Each. In each of them the parameter a is
// one array: a header with positions in it, and then the keys. The response has
// no element for a request that got the first key of each group, as most do.
// Otherwise it has the positions of the keys that it got. A request that failed
// has -2g for the group g, from 1, in which no key was free, and one less if
// that was over its limit.

// maxLevels is how many groups a request may have in the part eachLevels.
const maxLevels = 4

// The header of eachLevels is the number of requests. For each request there
// follow the number of groups before it and, for each level, the positions of
// the first and the last key; 0 where the request has no such level.
//
// A level is a subquery of the next one: it takes a key if the level before it
// did. Most groups have one candidate, which needs no subquery of its own.
func eachLevels() string {
	query, all, back, got, failed := "SELECT generate_series(1, a[1]) AS r", "", "", "", ""
	for level := 1; level <= maxLevels; level++ {
		w, before := "w"+strconv.Itoa(level), "w"+strconv.Itoa(level-1)
		first, last := "a[9*r-8+"+strconv.Itoa(2*level)+"]", "a[9*r-7+"+strconv.Itoa(2*level)+"]"
		take := " WHEN " + first + " = 0 THEN 1 WHEN pg_try_advisory_lock(a[" + first + "]) THEN " + first + " WHEN " + first + " = " + last + " THEN 0" +
			" ELSE coalesce((SELECT i FROM (SELECT generate_series(" + first + " + 1, " + last + ") AS i) AS c WHERE pg_try_advisory_lock(a[i]) LIMIT 1), 0) END AS " + w
		if level == 1 {
			take = "CASE" + take
		} else {
			take = "CASE WHEN " + before + " = 0 THEN 0" + take
			all, got, back = all+" AND ", got+", ", back+" AND "
		}
		query = "SELECT *, " + take + " FROM (" + query + ") AS q" + strconv.Itoa(level) + " OFFSET 0"
		all += w + " = greatest(" + first + ", 1)"
		got += w
		back += "CASE WHEN " + w + " > 1 THEN pg_advisory_unlock(a[" + w + "]) ELSE true END"
		failed += " + (" + w + " > 0)::int"
	}
	return inArray("ARRAY(SELECT unnest(CASE WHEN w" + strconv.Itoa(maxLevels) + " > 0 THEN ARRAY[" + got + "] WHEN " + back +
		" THEN ARRAY[-2 * (a[9*r-7] + 1" + failed + ")] END) FROM (" + query + ") AS levels WHERE NOT (" + all + "))::text")
}

// inArray replaces a by the parameter.
func inArray(query string) string { return strings.ReplaceAll(query, "a[", "(%N::bigint[])[") }

// The header of eachSteps is the number of groups. For each group there follow
//
//	the request that the group belongs to
//	the position before its first key
//	the position of its last key
//	the position of the last key beyond it; the number of those that this
//	session holds is before these keys. Equal to the one before: no such keys.
//
// A step takes a key of a group, and only if that succeeded the next step goes
// on with the next group of the request. A step has the position of the key
// that was taken; 0 if none was free; less than 0 if one was, but too many keys
// beyond the group are held. At the end, the steps of a request that did not
// reach its goal give back what they have.
const eachSteps = `ARRAY(WITH RECURSIVE step (g, won) AS (
		SELECT g, ` + takeOne + ` FROM (SELECT generate_series(1, a[1]) AS g) AS s WHERE a[4*g-2] IS DISTINCT FROM a[4*g-6]
		UNION ALL
		SELECT g, ` + takeOne + ` FROM (SELECT step.g + 1 AS g FROM step WHERE won > 0 AND step.g < a[1] AND a[4*step.g+2] = a[4*step.g-2]) AS s)
	SELECT CASE WHEN a[4*g-2] NOT IN (SELECT a[4*g-2] FROM step WHERE won <= 0) THEN won
		WHEN won = 0 THEN -2*g
		WHEN pg_advisory_unlock(a[abs(won)]) THEN CASE WHEN won < 0 THEN -2*g-1 ELSE 1 END END
	FROM step)::text`

// takeOne takes the first free key of group g.
const takeOne = `coalesce((SELECT CASE WHEN ` + within + ` THEN i ELSE -i END FROM (SELECT generate_series(a[4*g-1]+1, a[4*g]) AS i) AS c
	WHERE pg_try_advisory_lock(a[i]) LIMIT 1), 0)`

// within is the condition that more keys of the group are free than keys beyond
// it are held. Probes are shared, so that two of them do not exclude each
// other, and end with the statement's transaction. Until then no other session
// takes a key that a probe has found free.
const within = `(a[4*g] = a[4*g+1] OR (SELECT n = 0 OR n <= (
		SELECT count(*) FROM (SELECT FROM (SELECT generate_series(i+1, a[4*g]) AS f) AS t WHERE pg_try_advisory_xact_lock_shared(a[f]) LIMIT n) AS free)
	FROM (SELECT a[a[4*g]+1] + count(*) AS n FROM (SELECT generate_series(a[4*g]+2, a[4*g+1]) AS b) AS t WHERE NOT pg_try_advisory_xact_lock_shared(a[b])) AS taken))`

// eachForm returns the part for b.Each: the fastest that can carry it.
func eachForm(b *dialect.Batch) form {
	part := tryEachSingle
	for request := range dialect.Requests(b.Each) {
		if len(request) > maxLevels {
			return tryEachBounded
		}
		for i := range request {
			switch g := &request[i]; {
			case g.Bounded():
				return tryEachBounded
			case len(g.Keys) > 1:
				part = tryEach
			}
		}
	}
	return part
}

// eachOf returns the groups of b for a part. The form with all parts has two of
// them, and one gets none.
func eachOf(b *dialect.Batch, part form) []dialect.Group {
	if eachForm(b) != part {
		return nil
	}
	return b.Each
}

// appendEach appends the parameter of a part.
func appendEach(text []byte, part form, groups []dialect.Group) []byte {
	text = append(text, '{')
	switch part {
	case tryEachSingle:
		text = appendSingles(text, groups)
		text[len(text)-1] = '}'
		return text
	case tryEach:
		text = appendLevels(text, groups)
	default:
		text = appendSteps(text, groups)
	}
	for i := range groups {
		g := &groups[i]
		for _, k := range g.Keys {
			text = appendNumber(text, k.ID)
		}
		if g.Bounded() {
			text = appendNumber(text, int64(g.Held))
			for _, k := range g.Beyond {
				text = appendNumber(text, k.ID)
			}
		}
	}
	text[len(text)-1] = '}'
	return text
}

func appendNumber(text []byte, n int64) []byte { return append(strconv.AppendInt(text, n, 10), ',') }

// appendLevels appends the header of eachLevels.
func appendLevels(text []byte, groups []dialect.Group) []byte {
	n := requestsIn(groups)
	text = appendNumber(text, int64(n))
	at, before := headerOf(tryEach, groups)+1, 0
	for request := range dialect.Requests(groups) {
		text = appendNumber(text, int64(before))
		before += len(request)
		for level := range maxLevels {
			first, last := int64(0), int64(0)
			if level < len(request) {
				first, last = at, at+int64(len(request[level].Keys))-1
				at = last + 1
			}
			text = appendNumber(appendNumber(text, first), last)
		}
	}
	return text
}

// appendSteps appends the header of eachSteps.
func appendSteps(text []byte, groups []dialect.Group) []byte {
	text = appendNumber(text, int64(len(groups)))
	request, at := int64(1), headerOf(tryEachBounded, groups)
	for i := range groups {
		g := &groups[i]
		first, last := at, at+int64(len(g.Keys))
		if at = last; g.Bounded() {
			at += 1 + int64(len(g.Beyond))
		}
		for _, n := range [...]int64{request, first, last, at} {
			text = appendNumber(text, n)
		}
		if g.Last {
			request++
		}
	}
	return text
}

// requestsIn returns how many requests groups are of.
func requestsIn(groups []dialect.Group) (n int) {
	for range dialect.Requests(groups) {
		n++
	}
	return n
}

// headerOf returns the length of the header of a part.
func headerOf(part form, groups []dialect.Group) int64 {
	if part == tryEach {
		return 1 + int64((1+2*maxLevels)*requestsIn(groups))
	}
	return 1 + 4*int64(len(groups))
}

// readEach reads the response of a part.
func readEach(groups []dialect.Group, part form, column driver.Value) error {
	if part == tryEachSingle {
		return readSingles(groups, column)
	}
	numbers, err := parseArray(column)
	if err != nil {
		return err
	}
	for i := range groups {
		groups[i].Won = 0
	}
	slices.Sort(numbers)
	at, g := headerOf(part, groups), -1
	var before, last int64 // positions around the keys of group g
	for _, n := range numbers {
		switch {
		case n == 1: // no key
		case n < 0:
			failed := -n/2 - 1
			if failed < 0 || failed >= int64(len(groups)) {
				return dialect.ErrNonsense
			}
			groups[failed].Won = dialect.NoneFree
			if n%2 != 0 {
				groups[failed].Won = dialect.OverLimit
			}
		default:
			for n > last { // the positions rise with the groups
				if g++; g >= len(groups) {
					return dialect.ErrNonsense
				}
				before, last = at, at+int64(len(groups[g].Keys))
				if at = last; groups[g].Bounded() {
					at += 1 + int64(len(groups[g].Beyond))
				}
			}
			if n <= before {
				return dialect.ErrNonsense
			}
			groups[g].Won = int(n - before - 1)
		}
	}
	for request := range dialect.Requests(groups) {
		if slices.ContainsFunc(request, func(g dialect.Group) bool { return g.Won < 0 }) {
			dialect.GiveUp(request)
		}
	}
	return nil
}
