package dialect

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"strconv"
	"strings"
)

// A Claim says that who has it makes the keys of a namespace, its Class, with the
// secret that has this Print. It is a shared advisory lock on (class, print), held as long as the
// session: two sessions have different prints of one class never.
type Claim struct {
	Class, Print int32
}

// ClaimOf is the claim of a namespace with the secret of a fingerprint. The
// class is the first four bytes of SHA-256("latchkey secret:" + namespace).
func ClaimOf(namespace string, print uint32) Claim {
	sum := sha256.Sum256([]byte("latchkey secret:" + namespace))
	return Claim{int32(binary.BigEndian.Uint32(sum[:])), int32(print)}
}

// others is whether another print of class c than p is claimed.
const others = `EXISTS (SELECT FROM pg_locks AS l
	WHERE l.locktype = 'advisory' AND l.objsubid = 2 AND l.mode = 'ShareLock' AND l.granted
	AND l.database = (SELECT datid FROM pg_stat_get_activity(pg_backend_pid()))
	AND l.classid = (c::bigint & 4294967295)::oid AND l.objid <> (p::bigint & 4294967295)::oid)`

// claimQueries ask for claims: the first takes those that nobody disputes, the
// second looks again and gives back those that are disputed by now. So of two that come at
// the same moment one at least sees the other; and who comes to others that are there
// already does not disturb them. Each lists whom it did not leave with the claim.
var claimQueries = [...]string{
	`CASE WHEN ` + others + ` THEN true ELSE NOT pg_try_advisory_lock_shared(c, p) END`,
	`CASE WHEN ` + others + ` THEN pg_advisory_unlock_shared(c, p) ELSE false END`,
}

func (s *postgresSession) Claim(claims []Claim) (disputed []bool, err error) {
	disputed = make([]bool, len(claims))
	for _, query := range claimQueries {
		refused, err := s.claimStep(query, claims, disputed)
		if err != nil {
			return nil, Fail(err)
		}
		for _, i := range refused {
			disputed[i] = true
		}
	}
	return disputed, nil
}

// claimStep has a condition computed for each of claims, but for those that are
// disputed, and returns where it is true.
func (s *postgresSession) claimStep(condition string, claims []Claim, disputed []bool) (where []int, err error) {
	var values []string
	for i, c := range claims {
		if !disputed[i] {
			values = append(values, fmt.Sprintf("(%d, (%d)::int, (%d)::int)", i, c.Class, c.Print))
		}
	}
	if len(values) == 0 {
		return nil, nil
	}
	var (
		pid  int64
		list string
	)
	// The condition has side effects, so that the planner keeps it where it is.
	err = s.conn.QueryRowContext(context.Background(), `SELECT pg_backend_pid(), coalesce(string_agg(i::text, ','), '')
		FROM (SELECT i, `+condition+` AS yes FROM (VALUES `+strings.Join(values, ", ")+`) AS v (i, c, p)) AS w
		WHERE yes`).Scan(&pid, &list)
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
			return nil, errNonsense
		}
		where = append(where, i)
	}
	return where, nil
}
