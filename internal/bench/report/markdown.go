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
	p.goals()
	for _, s := range slices.Concat(sections, p.untold()) {
		p.section(s, drawn)
	}
	p.contenders()
	p.limits()
	return p.String()
}

// untold is a section for each scenario that sections does not know.
func (p *page) untold() (all []section) {
	told := map[string]bool{}
	for _, s := range sections {
		told[s.scenario] = true
	}
	for _, s := range p.r.Series {
		if !told[s.Scenario] {
			told[s.Scenario] = true
			all = append(all, section{scenario: s.Scenario, title: s.Scenario, x: "x"})
		}
	}
	return all
}

func (p *page) opening() {
	p.line("# Benchmarks\n")
	p.line("This kit against what one would use instead, measured side by side. `make bench` measures all of it anew and writes this page:")
	p.line("it starts a PostgreSQL and a Redis, has every contender in turn do the same work, round by round, and throws the servers away.")
	p.line("`make bench-quick` prints the main ratios in under a minute. The raw figures are in [benchmarks.json](benchmarks.json).\n")
	if p.r.Quick {
		p.line("**This was a quick run: few rounds, and short ones.**\n")
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

func (p *page) goals() {
	p.line("## What must hold\n")
	p.line("Each ratio is taken within a round, in which both sides ran shortly after each other; given are the median over the rounds")
	p.line("and the lowest and highest. The floor must hold, the goal is what we are after. The fastest Redis client is the one of all those")
	p.line("below that was fastest at that point.\n")
	p.line("| what | floor | goal | measured | |\n|---|---|---|---|---|")
	missed := 0
	for _, g := range goals() {
		s := g.measure(p.r)
		v := g.statusOf(s)
		p.line("| %s | %s | %s | %s | %s |", g.what, g.bound(g.floor), g.bound(g.goal), spreadText(s, g.unit), v)
		if v == floorMissed {
			missed++
		}
	}
	p.line("")
	if missed > 0 {
		p.line("**In this run %d of the floors were not met.** What limits them: [performance.md](performance.md#floors-that-are-not-met).\n", missed)
	}
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

- Client, server and load share the cores of one machine: what one of them saves, the others get. On machines of their own
  the client's and the server's limits come apart; the tables give the processor time of each.
- Loopback has no delay and loses nothing. The delayed runs add the delay of a network and nothing else;
  the proxy that delays works on the same cores, and more for those who send more packets.
- PostgreSQL does not write to disk in time (fsync is off). Advisory locks never do; lease rows would be slower in production.
- One Redis node, without replicas and without a file: what it has acknowledged can be lost in a failover, while a contender of PostgreSQL
  loses its locks with its connection and is told. They do not promise the same.
- Callers do nothing while they hold a lock, except where the text says so.
- Every caller is a closed loop: it asks again when it has its answer. A latency here is one under full load.`)
}
