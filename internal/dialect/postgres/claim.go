package postgres

import (
	"errors"
	"strconv"
	"strings"

	"github.com/latchkey-go/latchkey/internal/dialect"
)

// The conditions that are computed for claims (c, p), one after the other: each
// tells of those that the session has not, then.
const (
	// others is whether another print of the class is claimed.
	others = `EXISTS (SELECT FROM pg_catalog.pg_locks AS l
	WHERE l.locktype = 'advisory' AND l.objsubid = 2 AND l.mode = 'ShareLock' AND l.granted
	AND l.database = (SELECT datid FROM pg_catalog.pg_stat_get_activity(pg_catalog.pg_backend_pid()))
	AND l.classid = (c::bigint & 4294967295)::oid AND l.objid <> (p::bigint & 4294967295)::oid)`

	// takeUndisputed leaves those alone that are there: who comes to them with
	// another secret does not disturb them.
	takeUndisputed = `CASE WHEN ` + others + ` THEN true ELSE NOT pg_catalog.pg_try_advisory_lock_shared(c, p) END`

	// giveUpDisputed looks again: of two that came at the same moment one at least
	// sees the other.
	giveUpDisputed = `CASE WHEN ` + others + ` THEN pg_catalog.pg_advisory_unlock_shared(c, p) ELSE false END`

	giveUp = `pg_catalog.pg_advisory_unlock_shared(c, p)`
)

func (s *session) Claim(wanted, dropped []dialect.Claim) (disputed []bool, err error) {
	if _, err := s.compute(giveUp, dropped, nil); err != nil {
		return nil, s.disclaim(dropped, dialect.Fail(err))
	}
	disputed = make([]bool, len(wanted))
	for _, step := range []string{takeUndisputed, giveUpDisputed} {
		where, err := s.compute(step, wanted, disputed)
		if err != nil {
			return nil, s.disclaim(wanted, dialect.Fail(err))
		}
		for _, i := range where {
			disputed[i] = true
		}
	}
	return disputed, nil
}

// disclaim gives claims back after err of a statement that may have taken some. If
// that fails too, the session is not fit for use.
func (s *session) disclaim(claims []dialect.Claim, err error) error {
	if !dialect.Survives(err) {
		return err
	}
	if _, again := s.compute(giveUp, claims, nil); again != nil {
		return &dialect.Failure{Kind: dialect.Gone, Reason: "claims could not be given back: " + errors.Join(err, dialect.Fail(again)).Error()}
	}
	return err
}

// compute computes a condition for each of claims, but for those left out, and
// returns where it is true.
func (s *session) compute(condition string, claims []dialect.Claim, leftOut []bool) (where []int, err error) {
	var indices, classes, prints []string
	for i, c := range claims {
		if leftOut == nil || !leftOut[i] {
			indices = append(indices, strconv.Itoa(i))
			classes = append(classes, strconv.Itoa(int(c.Class)))
			prints = append(prints, strconv.Itoa(int(c.Print)))
		}
	}
	if len(indices) == 0 {
		return nil, nil
	}
	array := func(numbers []string) string { return "{" + strings.Join(numbers, ",") + "}" }
	var (
		pid  int64
		list string
	)
	// The condition has side effects, so that the planner keeps it where it is.
	err = s.conn.QueryRowContext(s.statements.ctx, `SELECT pg_catalog.pg_backend_pid(), coalesce(pg_catalog.string_agg(i::text, ','), '')
		FROM (SELECT i, `+condition+` AS yes FROM unnest($1::text::int[], $2::text::int[], $3::text::int[]) AS u (i, c, p)) AS v
		WHERE yes`, array(indices), array(classes), array(prints)).Scan(&pid, &list)
	if err != nil {
		return nil, err
	}
	if pid != s.pid {
		return nil, errOtherProcess
	}
	for item := range strings.SplitSeq(list, ",") {
		if item == "" {
			continue
		}
		i, err := strconv.Atoi(item)
		if err != nil || i < 0 || i >= len(claims) {
			return nil, dialect.ErrNonsense
		}
		where = append(where, i)
	}
	return where, nil
}
