package main

import (
	"context"
	"fmt"
	"os"
	"runtime"
	"strconv"
	"strings"
	"time"
)

// writeEvidence writes the page with the results of a commit.
func writeEvidence(ctx context.Context, commit string, results []result) error {
	date, err := git(ctx, "log", "-1", "--format=%cs", commit)
	if err != nil {
		return err
	}
	goVersion := runtime.Version()
	machine := fmt.Sprintf("%d processors%s, %s/%s, %s", runtime.NumCPU(), memory(), runtime.GOOS, runtime.GOARCH, goVersion)
	return os.WriteFile(evidencePage, []byte(evidence(commit, date, machine, results)), 0o644)
}

// evidence returns the page.
func evidence(commit, date, machine string, results []result) string {
	var page strings.Builder
	ok, failed := 0, 0
	for _, r := range results {
		switch {
		case r.OK:
			ok++
		case r.NotRun == "":
			failed++
		}
	}
	fmt.Fprintf(&page, `# Evidence

This page says what was run on one commit, and with which result.
`+"`make verify`"+` writes it, step by step.
[CONTRIBUTING](../CONTRIBUTING.md) says how to run it again.

| | |
|---|---|
| Commit | %s of %s |
| Machine | %s |
| Steps | %d: %d ok, %d failed, %d not run |

| step | what it shows | command | result | time | ended (UTC) |
|---|---|---|---|--:|---|
`, commit[:min(12, len(commit))], date, machine, len(steps), ok, failed, len(steps)-ok-failed)
	byName := map[string]result{}
	for _, r := range results {
		byName[r.Step] = r
	}
	for _, s := range steps {
		r, ran := byName[s.name]
		if !ran {
			fmt.Fprintf(&page, "| %s | %s | `%s` | not run | | |\n", s.name, s.shows, cell(s.command))
			continue
		}
		fmt.Fprintf(&page, "| %s | %s | `%s` | %s | %v | %s |\n", s.name, s.shows, cell(s.command), r.verdict(), r.Took,
			r.Ended.UTC().Format(time.DateTime))
	}
	page.WriteString("\n## The last lines of each step\n")
	for _, s := range steps {
		if r := byName[s.name]; len(r.Closing) > 0 {
			fmt.Fprintf(&page, "\n### %s\n\n```text\n%s\n```\n", s.name, strings.Join(r.Closing, "\n"))
		}
	}
	return page.String()
}

// cell escapes what would end a cell of a Markdown table.
func cell(s string) string { return strings.ReplaceAll(s, "|", `\|`) }

// memory returns the size of the machine's memory, where Linux says it.
func memory() string {
	text, _ := os.ReadFile("/proc/meminfo")
	for line := range strings.Lines(string(text)) {
		if kib, found := strings.CutPrefix(line, "MemTotal:"); found {
			n, _ := strconv.Atoi(strings.TrimSuffix(strings.TrimSpace(kib), " kB"))
			return fmt.Sprintf(", %d GiB", (n+1<<19)>>20)
		}
	}
	return ""
}
