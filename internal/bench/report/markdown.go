package report

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/latchkey-go/latchkey/internal/bench/locks"
	"github.com/latchkey-go/latchkey/internal/bench/results"
)

// A page is the report as it is written.
type page struct {
	strings.Builder
	r *results.Results
}

func (p *page) line(format string, args ...any) { fmt.Fprintf(p, format+"\n", args...) }

// markdown is the whole report.
func markdown(r *results.Results, drawn []plotFile) string {
	p := &page{r: r}
	p.opening()
	for _, s := range slices.Concat(sections, p.unlisted()) {
		p.section(s, drawn)
	}
	p.contenders()
	p.limits()
	return p.String()
}

// unlisted returns a section for each scenario that sections does not know.
func (p *page) unlisted() (all []section) {
	listed := map[string]bool{}
	for _, s := range sections {
		listed[s.scenario] = true
	}
	for _, s := range p.r.Series {
		if !listed[s.Scenario] {
			listed[s.Scenario] = true
			all = append(all, section{scenario: s.Scenario, title: s.Scenario, x: "x"})
		}
	}
	return all
}

func (p *page) opening() {
	p.line("# Benchmarks\n")
	p.line("This kit next to what an application would use instead, measured side by side.")
	p.line("`make bench` measures all of it again and writes this page.")
	p.line("It starts a PostgreSQL and a Redis, lets every contender do the same work in turn, round by round, and removes the servers.")
	p.line("All figures are medians over the rounds.")
	p.line("`make bench-quick` prints the main ratios in under a minute.")
	p.line("The raw figures are in [benchmarks.json](benchmarks.json).\n")
	if p.r.Quick {
		p.line("**This was a quick run, with few and short rounds.**\n")
	}
	m := p.r.Machine
	cpu := m.CPU
	if cpu == "" {
		cpu = "unknown processor"
	}
	machine := fmt.Sprintf("%s, %d cores", cpu, m.Cores)
	if m.Memory > 0 {
		machine += fmt.Sprintf(", %.0f GiB", float64(m.Memory)/(1<<30))
	}
	p.line("| | |\n|---|---|")
	p.line("| machine | %s, %s, %s |", machine, m.OS, m.Go)
	p.line("| measured | %s, in %v; rounds: %d |", p.r.Started.Format("2006-01-02"), p.r.Took, p.rounds())
	p.line("| versions | %s |", pairsOf(p.r.Versions, " "))
	p.line("| server settings that differ from the defaults | %s |\n", pairsOf(p.r.Settings, " = "))
}

func (p *page) rounds() (most int) {
	for _, s := range p.r.Series {
		most = max(most, len(s.Rounds))
	}
	return most
}

func pairsOf(m map[string]string, between string) string {
	var all []string
	for _, key := range slices.Sorted(maps.Keys(m)) {
		all = append(all, key+between+m[key])
	}
	return strings.Join(all, ", ")
}

func (p *page) contenders() {
	p.line("## How the contenders are set up\n")
	p.line("| contender | set up |\n|---|---|")
	for _, c := range locks.All() {
		p.line("| %s | %s |", c.Name, c.Setup)
	}
	p.line("")
}

func (p *page) limits() {
	p.line(`## What this does not show

- Client, server and load share the cores of one machine: what one of them saves, the others get.
  On machines of their own, the client's and the server's limits come apart; the tables give the processor time of each.
- Loopback has no delay and loses nothing. The delayed runs add a delay and nothing else.
  The proxy that delays works on the same cores, and works more for a contender that sends more packets.
- PostgreSQL does not wait for the disk (fsync is off). Advisory locks never do; lease rows would be slower in production.
- There is one Redis node, without replicas and without a file. A lock that it has acknowledged can be lost in a failover.
  A contender on PostgreSQL loses its locks with its connection and is told. The two do not promise the same.
- Callers do nothing while they hold a lock, except where the text says so.
- Every caller is a closed loop: it asks again when it has its response. A latency here is one under full load.`)
}
