package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"time"
)

// An evidence is the content of the page.
type evidence struct {
	commit   string
	date     string // of the commit
	machines []string
	results  []result
}

// readEvidence returns what the page says of a commit, with this machine among
// its machines. Results of another commit are dropped.
func readEvidence(ctx context.Context, commit string) (*evidence, error) {
	date, err := git(ctx, "log", "-1", "--format=%cs", commit)
	if err != nil {
		return nil, err
	}
	text, err := os.ReadFile(evidencePage)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return nil, err
	}
	e := parseEvidence(string(text), commit)
	e.date = date
	if machine := thisMachine(); !slices.Contains(e.machines, machine) {
		e.machines = append(e.machines, machine)
	}
	return e, nil
}

// resultsMark begins the last line of the page, which has the machines and the
// results in JSON for a later run.
const resultsMark = "<!-- results: "

// A record is that line's content.
type record struct {
	Commit   string
	Machines []string
	Results  []result
}

// parseEvidence reads back what page returned.
func parseEvidence(page, commit string) *evidence {
	e := &evidence{commit: commit}
	_, text, _ := strings.Cut(page, resultsMark)
	var r record
	if json.Unmarshal([]byte(strings.TrimSuffix(text, " -->\n")), &r) == nil && r.Commit == commit {
		e.machines, e.results = r.Machines, r.Results
	}
	return e
}

// write writes the page with results.
func (e *evidence) write(results []result) error {
	e.results = results
	return os.WriteFile(evidencePage, []byte(e.page()), 0o644)
}

// page returns the text of the page.
func (e *evidence) page() string {
	var page strings.Builder
	ok, failed := 0, 0
	byName := map[string]result{}
	for _, r := range e.results {
		byName[r.Step] = r
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
`, shortCommit(e.commit), e.date, strings.Join(e.machines, "; "), len(steps), ok, failed, len(steps)-ok-failed)
	for _, s := range steps {
		verdict, took, ended := "not run", "", ""
		if r, ran := byName[s.name]; ran {
			verdict, took, ended = r.verdict(), r.Took.String(), r.Ended.UTC().Format(time.DateTime)
		}
		fmt.Fprintf(&page, "| %s | %s | `%s` | %s | %s | %s |\n", s.name, s.shows, strings.ReplaceAll(s.command, "|", `\|`), verdict, took, ended)
	}
	page.WriteString("\n## The last lines of each step\n")
	for _, s := range steps {
		if r := byName[s.name]; len(r.Closing) > 0 {
			fmt.Fprintf(&page, "\n### %s\n\n```text\n%s\n```\n", s.name, strings.Join(r.Closing, "\n"))
		}
	}
	text, _ := json.Marshal(record{e.commit, e.machines, e.results}) // cannot fail; it escapes what would end a comment
	return page.String() + "\n" + resultsMark + string(text) + " -->\n"
}

func shortCommit(commit string) string { return commit[:min(12, len(commit))] }

// thisMachine says what the steps run on.
func thisMachine() string {
	return fmt.Sprintf("%d processors%s, %s/%s, %s", runtime.NumCPU(), memory(), runtime.GOOS, runtime.GOARCH, runtime.Version())
}

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
