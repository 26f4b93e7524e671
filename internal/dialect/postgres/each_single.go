package postgres

import (
	"database/sql/driver"
	"slices"
	"strconv"

	"github.com/latchkey-go/latchkey/internal/dialect"
)

// The part tryEachSingle is for requests with one key for each of a few groups, as most have. It
// needs no subquery for a group. Its parameter a is the number of requests and,
// for each of them, the number of its groups and a key for each of maxLevels. The
// response has an element for each request that failed: its number times
// maxLevels + 1, and the number of the group whose key was not free.
// eachSingles returns the query of the part.
func eachSingles() string {
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

// appendSingles appends the parameter, without its braces.
func appendSingles(text []byte, groups []dialect.Group) []byte {
	text = appendNumber(text, int64(requestsIn(groups)))
	for request := range dialect.Requests(groups) {
		text = appendNumber(text, int64(len(request)))
		for level := range maxLevels {
			if level < len(request) {
				text = appendNumber(text, request[level].Keys[0].ID)
			} else {
				text = append(text, "0,"...)
			}
		}
	}
	return text
}

// readSingles reads the response.
func readSingles(groups []dialect.Group, column driver.Value) error {
	failures, err := parseArray(column)
	if err != nil {
		return err
	}
	for i := range groups {
		groups[i].Won = 0
	}
	slices.Sort(failures)
	number := int64(0)
	for request := range dialect.Requests(groups) {
		if number++; len(failures) == 0 || failures[0]/(maxLevels+1) != number {
			continue
		}
		failed := failures[0]%(maxLevels+1) - 1
		if failed < 0 || failed >= int64(len(request)) {
			return dialect.ErrNonsense
		}
		dialect.GiveUp(request)
		request[failed].Won = dialect.NoneFree
		failures = failures[1:]
	}
	if len(failures) > 0 {
		return dialect.ErrNonsense
	}
	return nil
}
