package postgres

import (
	"fmt"
	"time"
)

// Interval returns d as an SQL expression, to the microsecond. A negative d
// counts as zero.
//
// The expression has hours, minutes and seconds, since PostgreSQL 14 reads no
// number of microseconds or seconds above 2^31. CockroachDB reads it as well.
func Interval(d time.Duration) string {
	us := max(d.Microseconds(), 0)
	s := us / 1e6
	return fmt.Sprintf("interval '%d:%02d:%02d.%06d'", s/3600, s/60%60, s%60, us%1e6)
}
