package postgres

import (
	"fmt"
	"math"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/latchkey-go/latchkey/internal/pgtest"
)

var arrays = []struct {
	text string
	want []int64
	ok   bool
}{
	{"{1}", []int64{1}, true},
	{"{1,-9223372036854775808,9223372036854775807}", []int64{1, -1 << 63, 1<<63 - 1}, true},
	{"{}", nil, true},
	{"", nil, false},
	{"{", nil, false},
	{"}", nil, false},
	{"{1,}", nil, false},
	{"{1.5}", nil, false},
	{"{9223372036854775808}", nil, false},
	{"{NULL}", nil, false},
}

func TestParseArray(t *testing.T) {
	t.Parallel()
	for _, tt := range arrays {
		got, err := parseArray(tt.text)
		if (err == nil) != tt.ok || !reflect.DeepEqual(got, tt.want) {
			t.Errorf("parseArray(%q) = %v, %v", tt.text, got, err)
		}
	}
}

func FuzzParseArray(f *testing.F) {
	for _, seed := range arrays {
		f.Add(seed.text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		numbers, err := parseArray(text)
		if err != nil {
			return
		}
		again, err := parseArray("{" + strings.Trim(strings.ReplaceAll(fmt.Sprint(numbers), " ", ","), "[]") + "}")
		if err != nil || !slices.Equal(again, numbers) {
			t.Errorf("%q: %v became %v, %v", text, numbers, again, err)
		}
	})
}

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
