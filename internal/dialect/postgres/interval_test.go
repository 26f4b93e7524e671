package postgres

import (
	"math"
	"testing"
	"time"

	"github.com/latchkey-go/latchkey/internal/pgtest"
)

// PostgreSQL 14 to 18 read each interval, to the microsecond. Version 14 reads no
// interval of more than 2^31 microseconds or seconds that is written in one unit.
func TestInterval(t *testing.T) {
	t.Parallel()
	db := openPool(t, "pgx", pgtest.Database(t))
	for _, d := range []time.Duration{
		-time.Hour, 0, time.Microsecond, 999999 * time.Microsecond, time.Second,
		2147483647 * time.Microsecond, 2147483648 * time.Microsecond, time.Hour,
		25*time.Hour + 59*time.Minute + 59*time.Second + 7*time.Microsecond, 100 * 365 * 24 * time.Hour, math.MaxInt64,
	} {
		var got int64
		if err := db.QueryRow("SELECT (extract(epoch FROM " + Interval(d) + ") * 1000000)::bigint").Scan(&got); err != nil {
			t.Errorf("%v is %s: %v", d, Interval(d), err)
		} else if want := max(d, 0).Microseconds(); got != want {
			t.Errorf("%v is %s: %d µs, want %d", d, Interval(d), got, want)
		}
	}
}
