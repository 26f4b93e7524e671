package postgres

import (
	"errors"
	"strconv"
	"strings"

	"github.com/latchkey-go/latchkey/internal/dialect"
)

// The conditions for a check with class c and fingerprint p, which is the
// shared advisory lock (c, p). A condition is true if the session does not hold
// the check afterwards.
const (
	// others holds if a session has the class with another fingerprint.
	others = `EXISTS (SELECT FROM pg_catalog.pg_locks AS l
	WHERE l.locktype = 'advisory' AND l.objsubid = 2 AND l.mode = 'ShareLock' AND l.granted
	AND l.database = (SELECT datid FROM pg_catalog.pg_stat_get_activity(pg_catalog.pg_backend_pid()))
	AND l.classid = (c::bigint & 4294967295)::oid AND l.objid <> (p::bigint & 4294967295)::oid)`

	// takeUnlessConflict takes the check unless others holds. So a session with
	// another secret does not disturb those that have one already.
	takeUnlessConflict = `CASE WHEN ` + others + ` THEN true ELSE NOT pg_catalog.pg_try_advisory_lock_shared(c, p) END`

	// dropOnConflict looks again. Of two sessions that took checks at the same
	// moment, at least one sees the other.
	dropOnConflict = `CASE WHEN ` + others + ` THEN pg_catalog.pg_advisory_unlock_shared(c, p) ELSE false END`

	dropCheck = `pg_catalog.pg_advisory_unlock_shared(c, p)`
)

// CheckSecrets implements dialect.Session.
func (s *session) CheckSecrets(wanted, dropped []dialect.SecretCheck) (conflicts []bool, err error) {
	if _, err := s.compute(dropCheck, dropped, nil); err != nil {
		return nil, s.giveBack(dropped, dialect.Fail(err))
	}
	conflicts = make([]bool, len(wanted))
	for _, step := range []string{takeUnlessConflict, dropOnConflict} {
		where, err := s.compute(step, wanted, conflicts)
		if err != nil {
			return nil, s.giveBack(wanted, dialect.Fail(err))
		}
		for _, i := range where {
			conflicts[i] = true
		}
	}
	return conflicts, nil
}

// giveBack gives checks back after err, of a statement that may have taken
// some. If that fails as well, the session is of no use.
func (s *session) giveBack(checks []dialect.SecretCheck, err error) error {
	if !dialect.Survives(err) {
		return err
	}
	if _, again := s.compute(dropCheck, checks, nil); again != nil {
		return &dialect.Failure{Kind: dialect.Gone, Reason: "checks could not be given back: " + errors.Join(err, dialect.Fail(again)).Error()}
	}
	return err
}

// compute computes a condition for each check that is not left out. It returns
// the indices for which it is true.
func (s *session) compute(condition string, checks []dialect.SecretCheck, leftOut []bool) (where []int, err error) {
	var indices, classes, fingerprints []string
	for i, c := range checks {
		if leftOut == nil || !leftOut[i] {
			indices = append(indices, strconv.Itoa(i))
			classes = append(classes, strconv.Itoa(int(c.Class)))
			fingerprints = append(fingerprints, strconv.Itoa(int(c.Fingerprint)))
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
		WHERE yes`, array(indices), array(classes), array(fingerprints)).Scan(&pid, &list)
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
		if err != nil || i < 0 || i >= len(checks) {
			return nil, dialect.ErrNonsense
		}
		where = append(where, i)
	}
	return where, nil
}
