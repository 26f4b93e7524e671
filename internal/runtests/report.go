package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"os/exec"
	"regexp"
	"slices"
	"strings"
	"sync"
	"time"
)

// A report prints the results of go test -json, a line for each package.
type report struct {
	mu      sync.Mutex // protects the fields below, and takes turns in writing
	out     io.Writer
	extra   []string            // more arguments of go test
	passed  int                 // tests without a parent
	skips   map[string][]string // the tests, by the reason
	skipped int
	failed  []string // how to repeat each failed test
}

func newReport(out io.Writer, extra []string) *report {
	return &report{out: out, extra: extra, skips: map[string][]string{}}
}

// An event is a line of go test -json.
type event struct {
	Action      string
	Package     string
	ImportPath  string // of build-output
	Test        string
	Elapsed     float64 // seconds
	Output      string
	FailedBuild string
}

// packageResult is what is known of a package while its tests run.
type packageResult struct {
	output  map[string][]string // by test; "" is the package
	order   []string            // of the tests that have failed, innermost first
	running map[string]bool
	passed  int
	skipped int
}

// module runs command, and reports the results of m's packages.
func (r *report) module(m module, command *exec.Cmd) {
	pipe, err := command.StdoutPipe()
	var complaints strings.Builder
	command.Stderr = &complaints
	if err == nil {
		err = command.Start()
	}
	seen := 0
	if err == nil {
		seen = r.read(m, pipe)
		err = command.Wait()
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if err != nil && (seen < len(m.packages) || len(r.failed) == 0) {
		fmt.Fprintf(r.out, "FAIL           %s: %v\n%s", m.dir, err, complaints.String())
		r.failed = append(r.failed, fmt.Sprintf("cd %s && go test ./...", m.dir))
	}
}

// read reports the events of m, and returns how many packages have ended.
func (r *report) read(m module, events io.Reader) (ended int) {
	packages := map[string]*packageResult{}
	builds := map[string][]string{}
	for lines := bufio.NewReader(events); ; {
		line, err := lines.ReadBytes('\n')
		var e event
		if len(line) > 0 && json.Unmarshal(line, &e) == nil {
			if e.Action == "build-output" {
				builds[e.ImportPath] = append(builds[e.ImportPath], e.Output)
				continue
			}
			p := packages[e.Package]
			if p == nil {
				p = &packageResult{output: map[string][]string{}, running: map[string]bool{}}
				packages[e.Package] = p
			}
			if r.note(m, p, e, builds) {
				ended++
			}
		}
		if err != nil {
			return ended
		}
	}
}

// note takes in an event of p, and reports whether the package has ended.
func (r *report) note(m module, p *packageResult, e event, builds map[string][]string) bool {
	switch {
	case e.Action == "output":
		p.output[e.Test] = append(p.output[e.Test], e.Output)
	case e.Action == "run", e.Action == "cont":
		p.running[e.Test] = true
	case e.Action == "pause": // a parallel test that waits for its turn
		delete(p.running, e.Test)
	case e.Test != "" && (e.Action == "pass" || e.Action == "skip" || e.Action == "fail"):
		delete(p.running, e.Test)
		r.test(m, p, e)
	case e.Test == "" && (e.Action == "pass" || e.Action == "skip" || e.Action == "fail"):
		r.end(m, p, e, builds[e.FailedBuild])
		return true
	}
	return false
}

// test takes in the end of a test.
func (r *report) test(m module, p *packageResult, e event) {
	outermost := !strings.Contains(e.Test, "/")
	switch e.Action {
	case "pass":
		if outermost {
			p.passed++
		}
		delete(p.output, e.Test)
	case "fail":
		p.order = append(p.order, e.Test)
	case "skip":
		p.skipped++
		r.skip(skipReason(p.output[e.Test]), shortName(m, e.Package)+" "+e.Test)
		delete(p.output, e.Test)
	}
}

func (r *report) skip(reason, test string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.skipped++
	r.skips[reason] = append(r.skips[reason], test)
}

// end prints the line of a package, and below it what has failed.
func (r *report) end(m module, p *packageResult, e event, build []string) {
	name := shortName(m, e.Package)
	for _, line := range p.output[""] { // of a package that runs no test without a server
		if strings.HasPrefix(line, missingPrefix) {
			r.skip(strings.TrimSpace(line), name)
			p.skipped++
		}
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.passed += p.passed
	verdict := "ok  "
	if e.Action == "fail" {
		verdict = "FAIL"
	}
	skipped := ""
	if p.skipped > 0 {
		skipped = fmt.Sprintf(", %d skipped", p.skipped)
	}
	fmt.Fprintf(r.out, "%s %7.1fs  %-34s %4d tests%s\n", verdict, e.Elapsed, name, p.passed, skipped)
	if e.Action == "fail" {
		r.printFailureLocked(m, p, e, build)
	}
}

// printFailureLocked prints what the failed tests have written, and how to
// repeat them.
func (r *report) printFailureLocked(m module, p *packageResult, e event, build []string) {
	pkg := "./" + strings.TrimPrefix(strings.TrimPrefix(shortName(m, e.Package), m.dir), "/")
	repeat := func(run string) {
		line := fmt.Sprintf("cd %s && go test -count=1%s %s", m.dir, run, strings.Join(append(slices.Clone(r.extra), pkg), " "))
		fmt.Fprintln(r.out, "    repeat:", line)
		r.failed = append(r.failed, line)
	}
	write(r.out, build)
	// After the failed tests come those that a panic or a hang has ended, and what
	// the package itself has written.
	for _, test := range slices.Concat(p.order, slices.Sorted(maps.Keys(p.running)), []string{""}) {
		write(r.out, p.output[test])
		if test != "" && !strings.Contains(test, "/") {
			repeat(" -run '^" + test + "$'")
		}
	}
	if len(p.order) == 0 && len(p.running) == 0 {
		repeat("")
	}
}

// framing matches the lines by which go test says what it does.
var framing = regexp.MustCompile(`^(\s*=== (RUN|PAUSE|CONT|NAME)|FAIL\s)`)

func write(out io.Writer, lines []string) {
	for _, line := range lines {
		if !framing.MatchString(line) {
			_, _ = io.WriteString(out, line)
		}
	}
}

// missingPrefix begins the reason of a test that was skipped because a program
// is missing.
const missingPrefix = "missing: "

// position matches what testing writes before a message.
var position = regexp.MustCompile(`^\s+\S+\.go:\d+: `)

// skipReason returns the reason that a test gave in its output.
func skipReason(output []string) string {
	for _, line := range slices.Backward(output) {
		if at := position.FindStringIndex(line); at != nil {
			return strings.TrimSpace(line[at[1]:])
		}
	}
	return "no reason given"
}

// shortName returns the folder of a package of m.
func shortName(m module, importPath string) string {
	const root = "github.com/latchkey-go/latchkey"
	if importPath == root {
		return "."
	}
	return strings.TrimPrefix(importPath, root+"/")
}

// finish prints what was skipped and how many tests have passed.
func (r *report) finish(took time.Duration) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	incomplete := false
	if len(r.skips) > 0 {
		fmt.Fprintln(r.out, "\nskipped:")
	}
	for _, reason := range slices.Sorted(maps.Keys(r.skips)) {
		tests := r.skips[reason]
		incomplete = incomplete || strings.HasPrefix(reason, missingPrefix)
		fmt.Fprintf(r.out, "%6d  %s (%s", len(tests), reason, tests[0])
		if len(tests) > 1 {
			fmt.Fprint(r.out, ", …")
		}
		fmt.Fprintln(r.out, ")")
	}
	if len(r.failed) > 0 {
		fmt.Fprintln(r.out, "\nfailed, and how to repeat it:")
		for _, line := range r.failed {
			fmt.Fprintln(r.out, "    "+line)
		}
	}
	fmt.Fprintf(r.out, "\nafter %v:\n%d passed, %d failed, %d skipped\n", took.Round(time.Second), r.passed, len(r.failed), r.skipped)
	switch {
	case len(r.failed) > 0:
		return errFailed
	case incomplete:
		return errIncomplete
	}
	return nil
}
