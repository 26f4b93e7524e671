package report

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/latchkey-go/latchkey/internal/bench/locks"
	"github.com/latchkey-go/latchkey/internal/bench/results"
)

// A page is the report as it is printed.
type page struct {
	strings.Builder
	r *results.Results
}

func (p *page) line(format string, args ...any) { fmt.Fprintf(p, format+"\n", args...) }

// markdown is the whole report.
func markdown(r *results.Results) string {
	p := &page{r: r}
	p.opening()
	for _, s := range slices.Concat(sections, p.unlisted()) {
		p.section(s)
	}
	p.contenders()
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
