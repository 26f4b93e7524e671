package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"
)

// Verify runs all steps on one commit, and writes evidencePage after each. It
// goes on after a failure. A later call for the same commit begins with the
// first step that has no result on the page. So it can go on elsewhere, after
// the page was committed.

// evidencePage is the page that verify writes.
const evidencePage = "docs/evidence.md"

// stepTimeout bounds one step.
const stepTimeout = 30 * time.Minute

// A result is what one step has shown on one commit.
type result struct {
	Step    string
	OK      bool
	NotRun  string // why it was not run; "" if it was
	Ended   time.Time
	Took    time.Duration
	Closing []string // the last lines of its output
}

// A verification is verify at work on one commit.
type verification struct {
	dir  string // for logs; it outlives the run
	out  io.Writer
	page func([]result) error // writes the page
	sh   func(ctx context.Context, command string, log io.Writer) error
}

// verify runs the steps whose names match, in a checkout of the commit.
func verify(ctx context.Context, match *regexp.Regexp, again bool, out io.Writer) error {
	chosen := slices.DeleteFunc(slices.Clone(steps), func(s step) bool { return !match.MatchString(s.name) })
	if len(chosen) == 0 {
		return fmt.Errorf("no step has a name that matches %q: %s lists them", match, evidencePage)
	}
	commit, err := testedCommit(ctx)
	if err != nil {
		return err
	}
	cache, err := os.UserCacheDir()
	if err != nil {
		return err
	}
	dir := filepath.Join(cache, "latchkey", "verify", commit[:12])
	tree, err := checkOut(ctx, commit, filepath.Join(dir, "tree"))
	if err != nil {
		return err
	}
	page, err := readEvidence(ctx, commit)
	if err != nil {
		return err
	}
	v := &verification{dir: dir, out: out, page: page.write}
	v.sh = func(ctx context.Context, command string, log io.Writer) error {
		c := exec.CommandContext(ctx, "sh", "-c", command)
		c.Dir, c.Stdout, c.Stderr = tree, log, log
		inGroup(c)
		return c.Run()
	}
	err = v.steps(ctx, chosen, page.results, again)
	return errors.Join(err, os.RemoveAll(tree))
}

// steps runs those of chosen that have no result yet.
func (v *verification) steps(ctx context.Context, chosen []step, results []result, again bool) error {
	for _, s := range chosen {
		old := slices.IndexFunc(results, func(r result) bool { return r.Step == s.name })
		if old >= 0 && (results[old].OK || !again && results[old].NotRun == "") {
			fmt.Fprintf(v.out, "%-20s has a result: %s\n", s.name, results[old].verdict())
			continue
		}
		fmt.Fprintf(v.out, "%-20s %s\n", s.name, s.command)
		r, err := v.step(ctx, s)
		if err != nil {
			return err // interrupted: the step has no result
		}
		fmt.Fprintf(v.out, "%-20s %s after %v\n", s.name, r.verdict(), r.Took)
		if old >= 0 {
			results[old] = r
		} else {
			results = append(results, r)
		}
		if err := v.page(results); err != nil {
			return err
		}
	}
	for _, r := range results {
		if !r.OK && r.NotRun == "" {
			return fmt.Errorf("a step has failed: see %s", evidencePage)
		}
	}
	return v.page(results)
}

// step runs one step. It returns an error only if ctx has ended.
func (v *verification) step(ctx context.Context, s step) (result, error) {
	r := result{Step: s.name, Ended: time.Now()}
	if s.root && os.Getuid() != 0 {
		r.NotRun = "needs root"
		return r, nil
	}
	log, err := os.Create(filepath.Join(v.dir, s.name+".log"))
	if err != nil {
		return r, err
	}
	defer log.Close()
	within, cancel := context.WithTimeout(ctx, stepTimeout)
	defer cancel()
	began := time.Now()
	err = v.sh(within, s.command, log)
	r.Ended, r.Took, r.OK = time.Now(), time.Since(began).Round(time.Second), err == nil
	if ctx.Err() != nil {
		return r, ctx.Err()
	}
	r.Closing, err = closingLines(log.Name(), v.dir)
	for _, line := range r.Closing {
		if reason, found := strings.CutPrefix(line, "NOT RUN: "); found && !r.OK {
			r.NotRun = reason // the step says so itself
		}
	}
	if within.Err() != nil {
		r.Closing = append(r.Closing, "ended after "+stepTimeout.String())
	}
	return r, err
}

// verdict says in a word or two how the step ended.
func (r result) verdict() string {
	switch {
	case r.NotRun != "":
		return "not run: " + r.NotRun
	case r.OK:
		return "ok"
	default:
		return "**failed**"
	}
}

// maxClosing is how many lines of a step's output the page keeps.
const maxClosing = 12

// closingLines returns the last lines of a log, without paths of this machine.
func closingLines(log, dir string) ([]string, error) {
	text, err := os.ReadFile(log)
	if err != nil {
		return nil, err
	}
	home, _ := os.UserHomeDir()
	clean := strings.NewReplacer(filepath.Join(dir, "tree"), ".", home, "~", os.TempDir(), "$TMPDIR")
	var lines []string
	for line := range strings.Lines(string(bytes.TrimSpace(text))) {
		if line = strings.TrimRight(clean.Replace(line), " \n"); line != "" {
			lines = append(lines, line)
		}
	}
	return lines[max(0, len(lines)-maxClosing):], nil
}
