//go:build linux

package main

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/latchkey-go/latchkey/internal/chaos/patroni/cluster"
	"github.com/latchkey-go/latchkey/internal/chaos/patroni/round"
)

// markdown returns the table, with how it came about. Rounds that were stuck are
// left out.
func (o *options) markdown(results []*round.Result) string {
	kinds, times := map[int]*round.Outcome{}, map[int]int{}
	var sum round.Result
	rounds, faults := 0, 0
	for _, r := range results {
		sum.Server = r.Server
		if r.Stuck != "" {
			continue
		}
		rounds++
		faults += len(r.Outcomes)
		sum.Operations += r.Operations
		sum.Contended += r.Contended
		sum.Stored += r.Stored
		sum.Fenced += r.Fenced
		for _, outcome := range r.Outcomes {
			if kinds[outcome.Row] == nil {
				kinds[outcome.Row] = &round.Outcome{}
			}
			kinds[outcome.Row].Add(outcome)
			times[outcome.Row]++
		}
	}
	var b strings.Builder
	fmt.Fprintf(&b, "%d faults in %d rounds, and %d rounds without a regular end: `%s`.\n%s.\n", faults, rounds, len(results)-rounds, o.command, sum.Server)
	fmt.Fprintf(&b, "Patroni has ttl %v, loop_wait %v, retry_timeout %v and synchronous_mode %t; each Session has a lease of %v.\n", cluster.TTL, cluster.LoopWait, cluster.RetryTimeout, o.synchronous, o.lease)
	fmt.Fprintf(&b, "%d operations, of which another process contended %d; %d fenced writes stored, and %d refused by the fence.\n\n", sum.Operations, sum.Contended, sum.Stored, sum.Fenced)
	b.WriteString("| kind | fault | times | locks lost | told, at most | granted again, half within / at most | not interrupted | two primaries, at most | overlaps excused, at most | commits lost | old holders refused | standbys made anew |\n")
	b.WriteString("|---|---|--:|--:|--:|--:|--:|--:|--:|--:|--:|--:|\n")
	for _, kind := range round.Kinds {
		if k := kinds[kind.Number]; k != nil {
			fmt.Fprintf(&b, "| %d | %s | %d | %d | %s | %s / %s | %d of %d | %d: %s | %d: %s | %d | %d | %d |\n",
				kind.Number, kind.Name, times[kind.Number], k.Lost, share(k.Told, 1), share(k.Served, 0.5), share(k.Served, 1), k.Spared, k.Spared+len(k.Served),
				len(k.Two), share(k.Two, 1), len(k.Excused), share(k.Excused, 1), k.Missing, k.Refused, k.Reinitialized)
		}
	}
	return b.String()
}

// share returns the time that a share p of times does not exceed.
func share(times []time.Duration, p float64) string {
	if len(times) == 0 {
		return "–"
	}
	slices.Sort(times)
	return fmt.Sprintf("%d ms", times[int(p*float64(len(times)-1))].Milliseconds())
}
