package postgres

import (
	"database/sql/driver"
	"slices"
	"strconv"
	"strings"

	"github.com/latchkey-go/latchkey/internal/dialect"
)

// The part of the statement for Batch.Each. Its parameter a is one array. After
// the number of groups there are four numbers for each group, and then the keys
// of all of them:
//
//	the request that the group belongs to
//	the position before its first key
//	the position of its last key
//	the position of the last key beyond it; the number of those that this
//	session holds is before these keys. Equal to the one before: no such keys.
//
// One step takes a key of a group, and only if that succeeded the next step
// goes on with the next group of the request. A step has the position of the
// key that was taken; 0 if none was free; less than 0 if one was, but too many
// keys beyond the group are held. At the end, the steps of a request that did
// not reach its goal give back what they have.
const eachSteps = `ARRAY(WITH RECURSIVE step (g, won) AS (
		SELECT g, ` + takeOne + ` FROM (SELECT generate_series(1, a[1]) AS g) AS s WHERE a[4*g-2] IS DISTINCT FROM a[4*g-6]
		UNION ALL
		SELECT g, ` + takeOne + ` FROM (SELECT step.g + 1 AS g FROM step WHERE won > 0 AND step.g < a[1] AND a[4*step.g+2] = a[4*step.g-2]) AS s)
	SELECT CASE WHEN a[4*g-2] NOT IN (SELECT a[4*g-2] FROM step WHERE won <= 0) THEN won
		WHEN won = 0 THEN -2*g
		WHEN pg_advisory_unlock(a[abs(won)]) THEN CASE WHEN won < 0 THEN -2*g-1 ELSE 0 END END
	FROM step)::text`

// takeOne takes the first free key of group g. %C stands for the condition
// under which it may keep the key at position i.
const takeOne = `coalesce((SELECT CASE WHEN %C THEN i ELSE -i END FROM (SELECT generate_series(a[4*g-1]+1, a[4*g]) AS i) AS c
	WHERE pg_try_advisory_lock(a[i]) LIMIT 1), 0)`

// within is the condition that more keys of the group are free than keys beyond
// it are held. Probes are shared, so that two of them do not exclude each
// other, and end with the statement's transaction. Until then no other session
// takes a key that a probe has found free.
const within = `(a[4*g] = a[4*g+1] OR (SELECT n = 0 OR n <= (
		SELECT count(*) FROM (SELECT FROM (SELECT generate_series(i+1, a[4*g]) AS f) AS t WHERE pg_try_advisory_xact_lock_shared(a[f]) LIMIT n) AS free)
	FROM (SELECT a[a[4*g]+1] + count(*) AS n FROM (SELECT generate_series(a[4*g]+2, a[4*g+1]) AS b) AS t WHERE NOT pg_try_advisory_xact_lock_shared(a[b])) AS taken))`

// eachColumn returns the column of the form with or without keys beyond groups.
func eachColumn(bounded bool) string {
	condition := "true"
	if bounded {
		condition = within
	}
	return strings.ReplaceAll(strings.ReplaceAll(eachSteps, "%C", condition), "a[", "(%N::bigint[])[")
}

// eachForm returns the part for b.Each.
func eachForm(b *dialect.Batch) form {
	if slices.ContainsFunc(b.Each, func(g dialect.Group) bool { return g.Bounded() }) {
		return tryEachBounded
	}
	return tryEach
}

// eachOf returns the groups of b for a part. The form with all parts has two of
// them, and one gets none.
func eachOf(b *dialect.Batch, part form) []dialect.Group {
	if eachForm(b) != part {
		return nil
	}
	return b.Each
}

// appendEach appends the parameter for groups.
func appendEach(text []byte, groups []dialect.Group) []byte {
	number := func(n int64) { text = append(strconv.AppendInt(text, n, 10), ',') }
	text = append(text, '{')
	number(int64(len(groups)))
	request, at := int64(1), int64(1+4*len(groups))
	for i := range groups {
		g := &groups[i]
		first := at
		at += int64(len(g.Keys))
		last, end := at, at
		if g.Bounded() {
			end += 1 + int64(len(g.Beyond))
		}
		for _, n := range [...]int64{request, first, last, end} {
			number(n)
		}
		if at = end; g.Last {
			request++
		}
	}
	for i := range groups {
		g := &groups[i]
		for _, k := range g.Keys {
			number(k.ID)
		}
		if g.Bounded() {
			number(int64(g.Held))
			for _, k := range g.Beyond {
				number(k.ID)
			}
		}
	}
	text[len(text)-1] = '}'
	return text
}

// readEach reads the response for groups.
func readEach(groups []dialect.Group, column driver.Value) error {
	steps, err := parseArray(column)
	if err != nil {
		return err
	}
	for i := range groups {
		groups[i].Won = dialect.GivenUp
	}
	at, g := int64(1+4*len(groups)), -1
	var keys, end int64 // of group g
	slices.Sort(steps)
	for _, n := range steps {
		switch {
		case n == 0: // a key that was given back
		case n < 0:
			failed := -n/2 - 1
			if failed >= int64(len(groups)) {
				return dialect.ErrNonsense
			}
			groups[failed].Won = dialect.NoneFree
			if n%2 != 0 {
				groups[failed].Won = dialect.OverLimit
			}
		default:
			for n > end { // the positions rise with the groups
				if g++; g >= len(groups) {
					return dialect.ErrNonsense
				}
				keys, end = at, at+int64(len(groups[g].Keys))
				if at = end; groups[g].Bounded() {
					at += 1 + int64(len(groups[g].Beyond))
				}
			}
			if n <= keys {
				return dialect.ErrNonsense
			}
			groups[g].Won = int(n - keys - 1)
		}
	}
	for request := range dialect.Requests(groups) {
		if !isWhole(request) {
			return dialect.ErrNonsense
		}
	}
	return nil
}

// isWhole reports whether each group of a request has a key, or exactly one has
// failed and no group has a key.
func isWhole(request []dialect.Group) bool {
	won, failed := 0, 0
	for i := range request {
		switch request[i].Won {
		case dialect.NoneFree, dialect.OverLimit:
			failed++
		case dialect.GivenUp:
		default:
			won++
		}
	}
	return won == len(request) || won == 0 && failed == 1
}
