//go:build linux

package main

import (
	"cmp"
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/latchkey-go/latchkey/internal/chaos/patroni/round"
)

// columns is the head of the table. Three times in a cell are the median, the
// 99th percentile and the longest.
var columns = []string{
	"kind", "fault", "times", "locks lost", "told p50 / p99 / max", "granted again p50 / p99 / max", "not interrupted",
	"two primaries", "overlaps then", "other overlaps", "commits lost", "holders of the old primary", "whole again, mean", "result",
}

// A row is one line of the table: all faults of one kind.
type row struct {
	round.Outcome
	times, stuck int
	took         time.Duration // of all
}

// rowOf adds up the faults of one kind.
func rowOf(results []*round.Result, number int) row {
	all := row{Outcome: round.Outcome{Row: number}}
	for _, r := range results {
		for _, o := range r.Outcomes {
			if o.Row != number {
				continue
			}
			if r.Stuck() {
				if o.Stuck != "" {
					all.stuck++
				}
				continue
			}
			all.times++
			all.took += time.Duration(o.Settled - o.Begin)
			all.Lost += o.Lost
			all.Told, all.Served = append(all.Told, o.Told...), append(all.Served, o.Served...)
			all.Spared += o.Spared
			all.Overlaps += o.Overlaps
			all.Excused += o.Excused
			all.News += o.News
			all.Two = append(all.Two, o.Two...)
			all.Longest = max(all.Longest, o.Longest)
			all.Missing += o.Missing
			all.Reinitialized += o.Reinitialized
			all.Cancelled += o.Cancelled
			all.Minority.Told += o.Minority.Told
			all.Minority.Refused += o.Minority.Refused
			all.Minority.Lost += o.Minority.Lost
			all.Minority.Kept += o.Minority.Kept
			all.Minority.Rejected += o.Minority.Rejected
		}
	}
	return all
}

// cells is a line of the table.
func (r row) cells(kind round.Kind) []string {
	two, then, others := "0", strconv.Itoa(r.Excused), strconv.Itoa(r.Overlaps)
	if len(r.Two) > 0 {
		two = fmt.Sprintf("%d times, longest %d ms", len(r.Two), slices.Max(r.Two).Milliseconds())
	}
	if r.Overlaps+r.Excused > 0 {
		then += fmt.Sprintf(" (longest %d ms)", r.Longest.Milliseconds())
	}
	if r.News > 0 {
		others += fmt.Sprintf(", and %d until the news arrived", r.News)
	}
	result, missing := "ok", strconv.Itoa(r.Missing)
	if r.Reinitialized > 0 {
		result += fmt.Sprintf("; standbys made anew by `reinit`: %d", r.Reinitialized)
	}
	if r.stuck > 0 {
		result += fmt.Sprintf("; %d more, and all of their rounds, not counted: the round had no regular end", r.stuck)
	}
	if r.Cancelled > 0 {
		missing += fmt.Sprintf(", and %d that were cancelled", r.Cancelled)
	}
	old, whole := "–", "–"
	if r.times > 0 {
		whole = fmt.Sprintf("%.1f s", r.took.Seconds()/float64(r.times))
	}
	if m := r.Minority; m != (round.Minority{}) {
		old = fmt.Sprintf("%d told before", m.Told)
		if m.Refused > 0 {
			old = fmt.Sprintf("%s; %d refused; of the commits on the old one %d lost and %d kept", old, m.Refused, m.Lost, m.Kept)
		}
		if m.Rejected > 0 {
			old = fmt.Sprintf("%s; %d not acknowledged", old, m.Rejected)
		}
	}
	if r.Overlaps > 0 {
		result = "**overlaps**"
	}
	return []string{
		strconv.Itoa(kind.Number), kind.Name, strconv.Itoa(r.times), strconv.Itoa(r.Lost), three(r.Told), three(r.Served),
		fmt.Sprintf("%d of %d", r.Spared, r.Spared+len(r.Served)), two, then, others, missing, old, whole, result,
	}
}

// three is three times in milliseconds.
func three(times []time.Duration) string {
	if len(times) == 0 {
		return "–"
	}
	slices.Sort(times)
	return fmt.Sprintf("%d / %d / %d ms", percentile(times, 0.5).Milliseconds(), percentile(times, 0.99).Milliseconds(), times[len(times)-1].Milliseconds())
}

// percentile is the smallest of sorted that is not less than a share p of them.
func percentile(sorted []time.Duration, p float64) time.Duration {
	return sorted[max(0, int(math.Ceil(p*float64(len(sorted))))-1)]
}

// how returns the settings and the size of the campaign, a sentence on each
// line.
func (o *options) how(results []*round.Result) string {
	faults, operations, contended, stored, fenced, took, blind := 0, 0, 0, 0, 0, time.Duration(0), time.Duration(0)
	for _, r := range results {
		took += r.Took
		if r.Stuck() {
			continue
		}
		blind = max(blind, r.Blind)
		faults += len(injected(r))
		operations += r.Operations
		contended += r.Contended
		stored += r.Stored
		fenced += r.Fenced
	}
	s := o.settings
	mode := "off"
	if s.Synchronous {
		mode = "on"
	}
	return fmt.Sprintf(`%v of clusters' time, in %d rounds with a cluster each: `+"`go run ./patroni%s -seed=%d`"+`.
%s.
Patroni has ttl %v, loop_wait %v, retry_timeout %v and synchronous_mode %s; each Session has a lease of %v.
%d faults; %d operations, of which another process contended %d; %d fenced writes stored, and %d refused by the fence.
When a server began or ceased to accept writes, and when each session began and ended, is known to within %d ms.`,
		took.Round(time.Second), len(results), o.others, o.seed, results[0].Server,
		s.TTL, s.LoopWait, s.RetryTimeout, mode, o.lease, faults, operations, contended, stored, fenced, blind.Milliseconds())
}

// markdown returns the table, with how it came about.
func (o *options) markdown(results []*round.Result) string {
	slices.SortFunc(results, func(a, b *round.Result) int { return cmp.Compare(a.Index, b.Index) })
	var b strings.Builder
	fmt.Fprintf(&b, "%s\n\n| %s |\n|%s\n", o.how(results), strings.Join(columns, " | "), strings.Repeat("---|", len(columns)))
	for _, kind := range round.Kinds {
		if r := rowOf(results, kind.Number); r.times+r.stuck > 0 {
			fmt.Fprintf(&b, "| %s |\n", strings.Join(r.cells(kind), " | "))
		}
	}
	return b.String()
}

// violations returns what was promised and did not hold. A cluster that does not
// become whole is no fault of the kit, so a few may be stuck: one in fifty.
func violations(results []*round.Result) error {
	var errs []error
	var stuck []error
	faults := 0
	for _, r := range results {
		for _, v := range r.Violations {
			errs = append(errs, fmt.Errorf("round %d: violated: %s", r.Index, v))
		}
		for i, o := range r.Outcomes {
			faults++
			if o.Stuck != "" {
				stuck = append(stuck, fmt.Errorf("round %d: fault %d, of kind %d, was stuck: %s", r.Index, i+1, o.Row, o.Stuck))
			}
		}
	}
	if len(stuck) > 1+faults/50 {
		errs = append(errs, stuck...)
	}
	return errors.Join(errs...)
}
