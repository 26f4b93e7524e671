//go:build linux

package main

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/latchkey-go/latchkey/internal/chaos/check"
	"github.com/latchkey-go/latchkey/internal/chaos/patroni/cluster"
	"github.com/latchkey-go/latchkey/internal/chaos/patroni/round"
)

// markdown returns the table, with how it came about. Rounds that were stuck are
// left out.
func (o *options) markdown(results []*round.Result) string {
	kinds := map[int]*sum{}
	var all round.Result
	rounds, faults := 0, 0
	for _, r := range results {
		all.Server = r.Server
		if r.Stuck != "" {
			continue
		}
		rounds++
		faults += len(r.Outcomes)
		all.Operations += r.Operations
		all.Contended += r.Contended
		all.Stored += r.Stored
		all.Fenced += r.Fenced
		for _, o := range r.Outcomes {
			if kinds[o.Row] == nil {
				kinds[o.Row] = &sum{}
			}
			kinds[o.Row].add(o)
		}
		for row, t := range r.Times {
			kinds[row].told, kinds[row].back = append(kinds[row].told, t.Told...), append(kinds[row].back, t.Back...)
		}
	}
	var b strings.Builder
	fmt.Fprintf(&b, "%d faults in %d rounds, and %d rounds without a regular end: `%s`.\n%s.\n", faults, rounds, len(results)-rounds, o.command, all.Server)
	fmt.Fprintf(&b, "Patroni has ttl %v, loop_wait %v, retry_timeout %v; each Session has a lease of %v.\n", cluster.TTL, cluster.LoopWait, cluster.RetryTimeout, o.lease)
	fmt.Fprintf(&b, "%d operations, of which another process contended %d; %d fenced writes stored, and %d refused by the fence.\n\n", all.Operations, all.Contended, all.Stored, all.Fenced)
	b.WriteString("| kind | fault | times | locks lost | told, at most | granted again, half within / at most | overlaps excused, at most | commits lost | old holders refused | standbys made anew |\n")
	b.WriteString("|---|---|--:|--:|--:|--:|--:|--:|--:|--:|\n")
	for _, kind := range round.Kinds {
		if k := kinds[kind.Number]; k != nil {
			fmt.Fprintf(&b, "| %d | %s | %d | %d | %s | %s / %s | %d: %s | %d | %d | %d |\n",
				kind.Number, kind.Name, k.times, len(k.told), share(k.told, 1), share(k.back, 0.5), share(k.back, 1),
				len(k.Excused), share(k.Excused, 1), k.Missing, k.Refused, k.Reinitialized)
		}
	}
	return b.String()
}

// A sum is what all faults of a kind have done.
type sum struct {
	round.Outcome
	times      int
	told, back []time.Duration // from the fault until holders were told, and until keys were granted again
}

func (s *sum) add(o round.Outcome) {
	s.times++
	s.Excused = append(s.Excused, o.Excused...)
	s.Missing += o.Missing
	s.Refused += o.Refused
	s.Reinitialized += o.Reinitialized
}

// share returns the time that a share p of times does not exceed.
func share(times []time.Duration, p float64) string {
	if len(times) == 0 {
		return "–"
	}
	slices.Sort(times)
	return fmt.Sprintf("%d ms", check.Percentile(times, p).Milliseconds())
}
