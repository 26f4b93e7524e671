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

// A section is one scenario in the report.
type section struct {
	scenario string
	title    string
	text     string
	x        string // what X is; empty: the same in all
	matrix   bool   // a table for each figure, with a column for each X
	bare     bool   // Extra is all there is
}

var sections = []section{
	{
		scenario: "pairs", title: "Acquire and release", x: "callers", matrix: true,
		text: "Each caller acquires and releases the lock of a name of its own, again and again.\n" +
			"This is a user who sends one request after the other. A pair is one acquire and one release.",
	},
	{
		scenario: "one processor", title: "The same, with one processor for the client", x: "callers", matrix: true,
		text: "The client's part of each contender gets one of the processors (GOMAXPROCS=1) and leaves the others to the servers.\n" +
			"On two shared processors, as above, a client that keeps both busy takes time from its own server.",
	},
	{
		scenario: "delay", title: "Half a millisecond of network each way",
		text: "Both servers are behind a proxy that delays every byte by 0.5 ms in each direction.\n" +
			"One byte there and back takes this long when nothing else happens:",
	},
	{scenario: "delayed", text: "512 callers, otherwise as above:"},
	{
		scenario: "held", title: "Many locks held", x: "locks held",
		text: "64 callers make pairs on a Session that holds other locks at the same time.\n" +
			"PostgreSQL walks a session's locks at the end of each statement, so the Session opens another connection for each thousand locks.",
	},
	{
		scenario: "holders", title: "Holders that need the database for their work",
		text: "500 goroutines each take a lock and run a query while they hold it, on a pool of 10 connections.\n" +
			"With a connection per lock from that pool, holders wait for each other until the run ends after two seconds.",
	},
	{
		scenario: "refusals", title: "Refusals",
		text: "64 callers want one key that another instance holds.\n" +
			"In the process that holds it, a refusal needs no database: see [In the process](#in-the-process).",
	},
	{
		scenario: "connections", title: "Connections", x: "callers",
		text: "The largest number of connections that a contender had while callers made pairs, according to pg_stat_activity.\n" +
			"More than a thousand callers hold more than a thousand locks.",
	},
	{
		scenario: "fleet", title: "A fleet", x: "pods",
		text: "Each pod has a pool or a Session of its own and 64 callers; all are on one PostgreSQL.\n" +
			"A caller that was refused or had an error comes back after about 10 ms.",
	},
	{
		scenario: "http", title: "HTTP, end to end",
		text: "64 clients request a route that does nothing, over HTTP/1.1 on loopback.\n" +
			"The route is bare or behind a limiter. Admitted and refused requests are measured separately.",
	},
	{scenario: "grpc", title: "gRPC, end to end", text: "The same as a unary call."},
	{
		scenario: "waiting", title: "Waiting",
		text: "Four processes with 64 callers each wait for 16 keys. p50 and p99 are those of the wait.",
	},
	{
		scenario: "in-process", title: "In the process", bare: true,
		text: "As testing.B measures it. Memory is the kit without a database.",
	},
}

// series are a scenario's that have figures, in the order in which they are in
// the results.
func (p *page) series(scenario string) (all []*results.Series) {
	for _, s := range p.r.Series {
		if s.Scenario == scenario && len(s.Rounds) > 0 {
			all = append(all, s)
		}
	}
	return all
}

func (p *page) section(s section, drawn []plotFile) {
	all := p.series(s.scenario)
	if len(all) == 0 {
		return
	}
	if s.title != "" {
		p.line("## %s\n", s.title)
	}
	p.line("%s\n", s.text)
	for _, d := range drawn {
		if d.scenario == s.scenario {
			p.line("![%s](%s)\n", d.title, d.file)
		}
	}
	if s.matrix {
		p.matrices(s, all)
		return
	}
	p.table(s, all)
}

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
