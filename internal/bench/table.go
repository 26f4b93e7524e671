package main

import (
	"bufio"
	"fmt"
	"os"
	"runtime"
	"slices"
	"strings"
	"time"
)

// A figure is one of a round's.
type figure func(round) float64

func rate(r round) float64   { return r.rate }
func p50(r round) float64    { return float64(r.p50) }
func p99(r round) float64    { return float64(r.p99) }
func busy(r round) float64   { return float64(r.busy) }
func failed(r round) float64 { return float64(r.errors) }

// median is a figure's over the rounds.
func (s *series) median(f figure) float64 {
	var values []float64
	for _, r := range s.rounds {
		values = append(values, f(r))
	}
	return median(values)
}

func median(values []float64) float64 {
	if len(values) == 0 {
		return 0
	}
	slices.Sort(values)
	middle := len(values) / 2
	if len(values)%2 == 1 {
		return values[middle]
	}
	return (values[middle-1] + values[middle]) / 2
}

// ratio is the median of a figure of s divided by that of other, round by round,
// since both sides of a round ran shortly after each other.
func (s *series) ratio(other *series, f figure) float64 {
	var values []float64
	for i := range min(len(s.rounds), len(other.rounds)) {
		if divisor := f(other.rounds[i]); divisor > 0 {
			values = append(values, f(s.rounds[i])/divisor)
		}
	}
	return median(values)
}

// table returns the figures in Markdown. A second table has what a contestant
// that is compared with others did for each unit of theirs.
func table(all []*series) string {
	var b, ratios strings.Builder
	b.WriteString("| contender | | per second | p50 | p99 | processor time | errors |\n|---|---|--:|--:|--:|--:|--:|\n")
	for _, s := range all {
		fmt.Fprintf(&b, "| %s | %s | %.0f | %s | %s | %s | %.0f |\n", s.name, s.x,
			s.median(rate), duration(s.median(p50)), duration(s.median(p99)), duration(s.median(busy)), s.median(failed))
		for _, other := range opponents(s, all) {
			fmt.Fprintf(&ratios, "| %s | %s | %s | %.2f | %.2f | %.2f |\n", s.name, s.x, other.name, s.ratio(other, rate), s.ratio(other, p99), s.ratio(other, busy))
		}
	}
	if ratios.Len() > 0 {
		b.WriteString("\n| contender | | against | per second | p99 | processor time |\n|---|---|---|--:|--:|--:|\n" + ratios.String())
	}
	return b.String()
}

// opponents are what s is compared with: its named opponent, and the fastest
// Redis client, if it has the same x.
func opponents(s *series, all []*series) (found []*series) {
	var fastest *series
	for _, other := range all {
		if other.x != s.x || s.against == "" {
			continue
		}
		if other.name == s.against {
			found = append(found, other)
		}
		if other.redis && (fastest == nil || other.median(rate) > fastest.median(rate)) {
			fastest = other
		}
	}
	if fastest != nil {
		found = append(found, fastest)
	}
	return found
}

// duration is a time in three digits.
func duration(nanoseconds float64) string {
	if nanoseconds < float64(time.Millisecond) {
		return fmt.Sprintf("%.3g µs", nanoseconds/float64(time.Microsecond))
	}
	return fmt.Sprintf("%.3g ms", nanoseconds/float64(time.Millisecond))
}

// machine describes this one, without its name.
func machine() string {
	text := fmt.Sprintf("%d processors, GOMAXPROCS=%d, %s/%s, %s", runtime.NumCPU(), runtime.GOMAXPROCS(0), runtime.GOOS, runtime.GOARCH, runtime.Version())
	file, err := os.Open("/proc/cpuinfo")
	if err != nil {
		return text
	}
	defer file.Close()
	for lines := bufio.NewScanner(file); lines.Scan(); {
		if key, value, ok := strings.Cut(lines.Text(), ":"); ok && strings.TrimSpace(key) == "model name" {
			return strings.TrimSpace(value) + ", " + text
		}
	}
	return text
}
