package report

import "github.com/latchkey-go/latchkey/internal/bench/results"

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
		scenario: "metrics", title: "With metrics", x: "callers",
		text: "Pairs through a limiter on a Session over pgx, whose figures a module for metrics shows, or none.\n" +
			"They are read ten times a second. The three take turns of 10 ms.",
	},
	{
		scenario: "stacks", title: "Several limits at once", x: "callers",
		text: "512 callers on two instances make pairs on one level or on three at once. Each level has room for all of them.\n" +
			"A tenant has 8 users and 10 places.",
	},
	{
		scenario: "waiting", title: "Waiting",
		text: "Four processes with 64 callers each wait for 16 keys. p50 and p99 are those of the wait.",
	},
	{
		scenario: "hand-over", title: "From process to process", x: "callers",
		text: "Four processes want the same 16 keys, with one caller each for each key, who rests after each hold.\n" +
			"p50 and p99 are those from the release in one process to the grant in another one that waited for it.",
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

func (p *page) section(s section) {
	all := p.series(s.scenario)
	if len(all) == 0 {
		return
	}
	if s.title != "" {
		p.line("## %s\n", s.title)
	}
	p.line("%s\n", s.text)
	if s.matrix {
		p.matrices(s, all)
		return
	}
	p.table(s, all)
}
