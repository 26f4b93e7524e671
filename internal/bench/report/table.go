package report

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/latchkey-go/latchkey/internal/bench/results"
)

// matrices has rows for contenders and columns for X.
func (p *page) matrices(s section, all []*results.Series) {
	var contenders []string
	var xs []int
	for _, one := range all {
		if !slices.Contains(contenders, one.Contender) {
			contenders = append(contenders, one.Contender)
		}
		if !slices.Contains(xs, one.X) {
			xs = append(xs, one.X)
		}
	}
	slices.Sort(xs)
	for _, m := range []struct {
		title  string
		figure results.Figure
		unit   unit
	}{
		{"pairs per second", results.Rate, rate},
		{"p50 of a pair", results.P50, duration},
		{"p99 of a pair", results.P99, duration},
		{"processor time of a pair, client", results.ClientCPU, duration},
		{"processor time of a pair, server", results.ServerCPU, duration},
	} {
		p.line("**%s**, medians:\n", strings.ToUpper(m.title[:1])+m.title[1:])
		header := []string{s.x}
		for _, x := range xs {
			header = append(header, strconv.Itoa(x))
		}
		p.row(header)
		p.line("|---%s|", strings.Repeat("|---:", len(xs)))
		for _, contender := range contenders {
			row := []string{contender}
			for _, x := range xs {
				row = append(row, median(p.r.Find(s.scenario, contender, "", x).Spread(m.figure), m.unit))
			}
			p.row(row)
		}
		p.line("")
	}
	p.errors(all)
}

// errors says which contenders had some; they are not in the rates.
func (p *page) errors(all []*results.Series) {
	var had []string
	for _, s := range all {
		if n := s.Spread(errorCount).Max; n > 0 {
			had = append(had, fmt.Sprintf("%s (%d): %s", s.Contender, s.X, count(n)))
		}
	}
	if len(had) > 0 {
		p.line("Most errors in a round: %s.\n", strings.Join(had, ", "))
	}
}

func errorCount(r results.Round) float64 { return float64(r.Errors) }

func median(s results.Spread, u unit) string {
	if s.Rounds == 0 || s.Median == 0 {
		return "–"
	}
	return u(s.Median)
}

// A column is one of table's; it is left out where no series has it.
type column struct {
	name string
	cell func(*results.Series) string
}

// table has a row for each series.
func (p *page) table(s section, all []*results.Series) {
	columns := []column{
		{"contender", func(s *results.Series) string { return s.Contender }},
		{"", func(s *results.Series) string { return s.Variant }},
	}
	if s.x != "" {
		columns = append(columns, column{s.x, func(s *results.Series) string { return strconv.Itoa(s.X) }})
	}
	add := func(name string, f results.Figure, u unit) {
		columns = append(columns, column{name, func(s *results.Series) string { return median(s.Spread(f), u) }})
	}
	if !s.bare {
		add("per second", results.Rate, rate)
		add("p50", results.P50, duration)
		add("p99", results.P99, duration)
		add("client's processor time per operation", results.ClientCPU, duration)
		add("server's processor time per operation", results.ServerCPU, duration)
		add("errors in a round", errorCount, count)
	}
	for _, name := range extras(all) {
		add(cmp.Or(extraNames[name], name), results.Extra(name), extraText)
	}
	columns = slices.DeleteFunc(columns, func(c column) bool {
		return !slices.ContainsFunc(all, func(s *results.Series) bool { return c.cell(s) != "" && c.cell(s) != "–" })
	})
	var header, rule []string
	for i, c := range columns {
		header = append(header, c.name)
		if i == 0 || c.name == "" {
			rule = append(rule, "---")
		} else {
			rule = append(rule, "---:")
		}
	}
	p.row(header)
	p.line("|%s|", strings.Join(rule, "|"))
	for _, one := range all {
		var row []string
		for _, c := range columns {
			row = append(row, c.cell(one))
		}
		p.row(row)
	}
	p.line("")
}

// row is a line of a table.
func (p *page) row(cells []string) { p.line("| %s |", strings.Join(cells, " | ")) }

// extraNames says what the figures are that only one scenario has, where their
// names do not.
var extraNames = map[string]string{
	"ns":           "time per operation, ns",
	"ns more":      "more time than bare, ns",
	"allocs":       "allocations per operation",
	"allocs more":  "more allocations than bare",
	"bytes":        "bytes allocated per operation",
	"bytes more":   "more bytes than bare",
	"refused":      "refused per second",
	"no room":      "refused by the server per second, for lack of connections",
	"switches":     "context switches of the machine per pair",
	"batch":        "keys per statement",
	"least share":  "share of the process with the fewest grants",
	"most share":   "share of the process with the most",
	"longest wait": "longest wait, s",
	"finished":     "holders that finished",
	"acquired":     "holders that got their lock",
}

// extraText writes a figure whose unit is in the column's name.
func extraText(v float64) string {
	if v == float64(int64(v)) {
		return strconv.FormatInt(int64(v), 10)
	}
	return significant(v)
}

// extras are the names of what Extra holds.
func extras(all []*results.Series) []string {
	names := map[string]bool{}
	for _, s := range all {
		for _, r := range s.Rounds {
			for name := range r.Extra {
				names[name] = true
			}
		}
	}
	return slices.Sorted(maps.Keys(names))
}
