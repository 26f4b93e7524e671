package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"regexp"
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

// parseEvidence reads back what page returned.
func parseEvidence(page, commit string) *evidence {
	e := &evidence{commit: commit}
	if !strings.Contains(page, "| Commit | "+shortCommit(commit)+" of ") {
		return e
	}
	for line := range strings.Lines(page) {
		cells := strings.Split(strings.ReplaceAll(strings.TrimSpace(line), `\|`, ""), " | ")
		switch {
		case len(cells) == 2 && cells[0] == "| Machine":
			e.machines = strings.Split(strings.TrimSuffix(cells[1], " |"), "; ")
		case len(cells) == 6 && cells[3] != "not run":
			r := result{step: strings.TrimPrefix(cells[0], "| "), ok: cells[3] == verdictOK}
			r.notRun, _ = strings.CutPrefix(cells[3], verdictNotRun)
			if r.notRun == cells[3] {
				r.notRun = ""
			}
			var errTook, errEnded error
			r.took, errTook = time.ParseDuration(cells[4])
			r.ended, errEnded = time.Parse(time.DateTime, strings.TrimSuffix(cells[5], " |"))
			if errTook == nil && errEnded == nil { // not a heading
				r.closing = closingOf(page, r.step)
				e.results = append(e.results, r)
			}
		}
	}
	return e
}

// closingOf returns the last lines of a step as they stand on the page.
func closingOf(page, step string) []string {
	found := regexp.MustCompile("(?s)\n### " + regexp.QuoteMeta(step) + "\n\n```text\n(.*?)\n```\n").FindStringSubmatch(page)
	if found == nil {
		return nil
	}
	return strings.Split(found[1], "\n")
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
		byName[r.step] = r
		switch {
		case r.ok:
			ok++
		case r.notRun == "":
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
			verdict, took, ended = r.verdict(), r.took.String(), r.ended.UTC().Format(time.DateTime)
		}
		fmt.Fprintf(&page, "| %s | %s | `%s` | %s | %s | %s |\n", s.name, s.shows, strings.ReplaceAll(s.command, "|", `\|`), verdict, took, ended)
	}
	page.WriteString("\n## The last lines of each step\n")
	for _, s := range steps {
		if r := byName[s.name]; len(r.closing) > 0 {
			fmt.Fprintf(&page, "\n### %s\n\n```text\n%s\n```\n", s.name, strings.Join(r.closing, "\n"))
		}
	}
	return page.String()
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
