package report

import (
	"fmt"
	"math"
	"strconv"
	"strings"

	"github.com/latchkey-go/latchkey/internal/bench/results"
)

// A unit writes a figure for people.
type unit func(float64) string

func times(v float64) string        { return significant(v) + "×" }
func count(v float64) string        { return strconv.FormatFloat(math.Round(v*10)/10, 'f', -1, 64) }
func nanoseconds(v float64) string  { return fmt.Sprintf("%.0f ns", v) }
func milliseconds(v float64) string { return significant(v*1e3) + " ms" }

// fraction writes a ratio below one as what it is one part of.
func fraction(v float64) string {
	if v <= 0 || v >= 1 {
		return times(v)
	}
	return "1/" + strings.TrimSuffix(strings.TrimSuffix(significant(1/v), ".00"), ".0")
}

// duration writes seconds.
func duration(v float64) string {
	switch {
	case v < 1e-6:
		return nanoseconds(v * 1e9)
	case v < 100e-6:
		return significant(v*1e6) + " µs"
	}
	return milliseconds(v)
}

// rate writes operations per second.
func rate(v float64) string {
	switch {
	case v >= 1e6:
		return significant(v/1e6) + "M"
	case v >= 1e3:
		return significant(v/1e3) + "k"
	}
	return significant(v)
}

// significant writes three digits, or all that are before the point.
func significant(v float64) string {
	switch size := math.Abs(v); {
	case size >= 100:
		return strconv.FormatFloat(v, 'f', 0, 64)
	case size >= 10:
		return strconv.FormatFloat(v, 'f', 1, 64)
	}
	return strconv.FormatFloat(v, 'f', 2, 64)
}

// spreadText is the median and, where there are several rounds, the range.
func spreadText(s results.Spread, u unit) string {
	switch {
	case s.Rounds == 0:
		return "–"
	case s.Rounds == 1 || u(s.Min) == u(s.Max):
		return u(s.Median)
	}
	return fmt.Sprintf("%s (%s–%s)", u(s.Median), u(s.Min), u(s.Max))
}
