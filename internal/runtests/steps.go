package main

import (
	"fmt"
	"path"
)

// The steps of verify.

// A step is one command of verify, and what its success shows.
type step struct {
	name    string
	shows   string
	command string // for sh, in the root of the tree
	root    bool   // it needs root
}

// steps are in the order in which they run: what fails soonest comes first.
var steps = buildSteps()

func buildSteps() []step {
	all := []step{
		{name: "static", shows: "formatting, vet and lint", command: "make fmt vet lint"},
		{name: "other-systems", shows: "vet for eight other systems", command: "make vet-systems"},
		{name: "release-check", shows: "the modules can be released, got, built and installed", command: "make release-check"},
		{name: "vulnerabilities", shows: "no known vulnerability in code that the modules call", command: "make vulncheck"},
		{name: "test", shows: "all deterministic tests", command: "make test"},
		{name: "test-long", shows: "kills, storms, thousand rounds, the browser, a short campaign", command: "make test-long"},
		{name: "two-at-once", shows: "runs in two clones on one machine do not meet", command: "git clone -q . ../second; make -C ../second test & other=$!; make test; status=$?; wait $other || status=1; rm -rf ../second; exit $status"},
		{name: "loaded", shows: "no test depends on the machine's speed: twice with two busy processes", command: "go run -C internal/runtests . -times 2 -busy 2 test"},
		{name: "one-processor", shows: "all deterministic tests with GOMAXPROCS=1", command: "GOMAXPROCS=1 make test"},
		{name: "eight-processors", shows: "all deterministic tests with GOMAXPROCS=8", command: "GOMAXPROCS=8 make test"},
		{name: "race-sqllock", shows: "no data race, three times", command: "go run -C internal/runtests . -only '^(sqllock|internal/(simulation|keytable|session))$' test -- -race -count=3"},
		{name: "race-root", shows: "no data race, three times", command: "go run -C internal/runtests . -only '^(sqllock/|ratelimit|httpmw|grpcmw|internal/(admission|rpclimit|bound|dialect|histogram))' test -- -race -count=3"},
		{name: "race-nested", shows: "no data race, three times", command: "go run -C internal/runtests . -only '^(internal/(databases|chaos)|examples)' test -- -race -count=3"},
		{name: "oldest-go", shows: "the modules that allow Go 1.25 pass with it", command: "go run -C internal/runtests . -go 1.25.0 test"},
		{name: "newest-requirements", shows: "the root module passes with the newest versions of its requirements", command: "make test-newest"},
		{name: "fuzz", shows: "each fuzz target for ten seconds", command: "make fuzz"},
		{name: "caddy", shows: "the module of Caddy", command: "go run -C internal/runtests . -only '^examples/gateway/caddy$' -without '^$' test"},
	}
	for _, version := range []string{"14", "15", "16", "17", "18"} {
		all = append(all, step{name: "postgresql-" + version, shows: "the tests on this version of PostgreSQL", command: "make test-matrix VERSIONS=" + version})
	}
	const slices = 6
	for i := range slices {
		all = append(all, step{
			name:    fmt.Sprintf("planted-bugs-%d", i+1),
			shows:   "each planted bug makes a test fail",
			command: fmt.Sprintf("make mutants SLICE=%d/%d", i+1, slices),
		})
	}
	for _, m := range []struct {
		pkg   string
		files []string // each part ends within stepTimeout
	}{
		{"internal/keytable", []string{""}},
		{"internal/session", []string{"^[a-e]", "^[f-z]"}},
		{"internal/dialect", []string{""}},
		{"ratelimit", []string{""}},
		{"httpmw", []string{"^h", "^[^h]"}},
		{"httpmw/idempotency", []string{"^[a-k]", "^[l-r]", "^[s-z]"}},
		{"grpcmw", []string{""}},
		{"sqllock", []string{"^[a-l]", "^[m-z]"}},
	} {
		for i, files := range m.files {
			all = append(all, step{
				name:    fmt.Sprintf("mutants-%s-%d", path.Base(m.pkg), i+1),
				shows:   "a test catches at least 85 % of the changed operators, and each survivor is known",
				command: fmt.Sprintf("make mutate PACKAGE=./%s FILES='%s'", m.pkg, files),
			})
		}
	}
	for _, store := range []string{"postgres", "leases", "pooled-leases", "mariadb", "mariadb-leases", "sqlite"} {
		all = append(all, step{
			name:    "campaign-" + store,
			shows:   "no double grant and no stale write under faults",
			command: "make chaos-soak STORES=" + store + " DURATION=12m",
		})
	}
	for _, store := range []string{"postgres", "leases", "mariadb", "sqlite"} {
		all = append(all, step{
			name:    "mixed-" + store,
			shows:   "processes of the last release and of this commit exclude each other: 500,000 operations, 200 faults",
			command: "make chaos-mixed STORES=" + store + " DURATION=16m",
		})
	}
	return append(all,
		step{name: "tidb", shows: "the tests of databases, with two TiDB servers", command: "make test-tidb"},
		step{name: "campaign-tidb", shows: "no double grant and no stale write under faults", command: "make chaos-tidb DURATION=20m"},
		step{name: "failovers", shows: "no stale fenced write across failovers", command: "make failovers EACH=2", root: true},
		step{name: "bench", shows: "the main ratios of docs/benchmarks.md", command: "make bench-quick"},
	)
}
