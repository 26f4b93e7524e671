package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os/exec"
	"regexp"
	"strings"
	"testing"
	"testing/fstest"
	"time"
)

func file(text string) *fstest.MapFile { return &fstest.MapFile{Data: []byte(text)} }

func TestModules(t *testing.T) {
	tree := fstest.MapFS{
		"go.mod":               file("module x\n\ngo 1.25.0\n"),
		"a/a_test.go":          file("func TestA"),
		"a/b/b_test.go":        file("func TestB\nfunc TestLongB"),
		"a/b/c.go":             file(""),
		"a/testdata/d_test.go": file("func TestLongD"),
		".git/e_test.go":       file(""),
		"n/m/go.mod":           file("module x/n/m\n\ngo 1.26.0\n"),
		"n/m/f_test.go":        file("func TestLongF"),
		"n/m/g/g_test.go":      file("func TestG"),
	}
	tests := []struct {
		long bool
		want string
	}{
		{false, "[{. 1.25.0 [./a ./a/b]} {n/m 1.26.0 [./ ./g]}]"},
		{true, "[{. 1.25.0 [./a/b]} {n/m 1.26.0 [./]}]"},
	}
	for _, tt := range tests {
		got, err := modules(tree, tt.long)
		if err != nil || fmt.Sprint(got) != tt.want {
			t.Errorf("long %v: %v, %v; want %s", tt.long, got, err, tt.want)
		}
	}
	all, _ := modules(tree, false)
	if got := all[1].choose(regexp.MustCompile("n/m"), regexp.MustCompile("g$")).packages; fmt.Sprint(got) != "[./]" {
		t.Errorf("chosen: %v, want [./]", got)
	}
}

// goTest returns a command that prints events as go test -json does, and then
// exits with status.
func goTest(t *testing.T, events string, status int) *exec.Cmd {
	t.Helper()
	c := exec.CommandContext(t.Context(), "sh", "-c", fmt.Sprintf("cat; exit %d", status))
	c.Stdin = strings.NewReader(events)
	return c
}

func TestReport(t *testing.T) {
	const pkg = `"Package":"github.com/latchkey-go/latchkey/n/m/p"`
	output := func(test, line string) string {
		return `{"Action":"output",` + pkg + `,"Test":"` + test + `","Output":"` + line + `\n"}` + "\n"
	}
	ends := func(action, test string) string {
		return `{"Action":"run",` + pkg + `,"Test":"` + test + `"}` + "\n" + `{"Action":"` + action + `",` + pkg + `,"Test":"` + test + `"}` + "\n"
	}
	end := func(action string) string { return `{"Action":"` + action + `",` + pkg + `,"Elapsed":1.5}` + "\n" }
	tests := []struct {
		name   string
		events string
		status int
		err    error
		want   []string
	}{
		{"passed", ends("pass", "TestA") + ends("pass", "TestA/sub") + end("pass"), 0, nil,
			[]string{"ok       1.5s  n/m/p                                 1 tests\n", "\n1 passed, 0 failed, 0 skipped\n"}},
		{"skipped", output("TestB", "    b_test.go:7: needs Linux") + ends("skip", "TestB") + end("pass"), 0, nil,
			[]string{"1 skipped", "     1  needs Linux (n/m/p TestB)"}},
		{"missing program", output("TestB", "    b.go:7: missing: PgBouncer") + ends("skip", "TestB") + end("pass"), 0, errIncomplete,
			[]string{"missing: PgBouncer"}},
		{"package without its server", `{"Action":"output",` + pkg + `,"Output":"missing: PostgreSQL\n"}` + "\n" + end("pass"), 0, errIncomplete,
			[]string{"     1  missing: PostgreSQL (n/m/p)"}},
		{"failed", output("TestC/x", "=== RUN TestC/x") + output("TestC/x", "    c_test.go:9: got 1, want 2") + ends("fail", "TestC/x") + ends("fail", "TestC") + end("fail"), 1, errFailed,
			[]string{"FAIL     1.5s  n/m/p", "got 1, want 2", "repeat: cd n/m && go test -count=1 -run '^TestC$' -race ./p", "0 passed, 1 failed"}},
		{"failed, then hung", ends("fail", "TestC") + `{"Action":"run",` + pkg + `,"Test":"TestD"}` + "\n" + output("TestD", "panic: test timed out") +
			`{"Action":"run",` + pkg + `,"Test":"TestE"}` + "\n" + `{"Action":"pause",` + pkg + `,"Test":"TestE"}` + "\n" + end("fail"), 1, errFailed,
			[]string{"-run '^TestC$'", "panic: test timed out", "-run '^TestD$'", "0 passed, 2 failed"}},
		{"panic", `{"Action":"run",` + pkg + `,"Test":"TestD"}` + "\n" + output("TestD", "panic: oh") + end("fail"), 1, errFailed,
			[]string{"panic: oh", "-run '^TestD$'"}},
		{"after the tests", ends("pass", "TestE") + `{"Action":"output",` + pkg + `,"Output":"a goroutine is left\n"}` + "\n" + end("fail"), 1, errFailed,
			[]string{"a goroutine is left", "repeat: cd n/m && go test -count=1 -race ./p"}},
		{"build failed", `{"Action":"build-output","ImportPath":"i","Output":"no such name\n"}` + "\n" +
			`{"Action":"fail",` + pkg + `,"FailedBuild":"i"}` + "\n", 1, errFailed, []string{"no such name"}},
		{"go has failed", "", 1, errFailed, []string{"FAIL           n/m: exit status 1"}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			var out strings.Builder
			r := newReport(&out, []string{"-race"})
			r.module(module{dir: "n/m", packages: []string{"./p"}}, goTest(t, tt.events, tt.status))
			if err := r.finish(time.Minute); !errors.Is(err, tt.err) {
				t.Errorf("finish: %v, want %v", err, tt.err)
			}
			for _, want := range tt.want {
				if !strings.Contains(out.String(), want) {
					t.Errorf("the report lacks %q:\n%s", want, &out)
				}
			}
			if strings.Contains(out.String(), "=== RUN") {
				t.Errorf("the report has lines of go test's own:\n%s", &out)
			}
		})
	}
}

// What runtests does not know is an error before any test runs.
func TestArguments(t *testing.T) {
	for _, args := range []string{"", "tests", "test -busy 2", "verify -h", "verify -- -race", "-busy many test", "-only ( test", "-steps ( verify"} {
		if err := run(t.Context(), strings.Fields(args), io.Discard); err == nil {
			t.Errorf("runtests %s: no error", args)
		}
	}
}

// A verification goes on after a failure, and after an interruption with the
// first step that has no result on the page.
func TestVerifyGoesOn(t *testing.T) {
	const commit = "0123456789abcdef"
	defer func(all []step) { steps = all }(steps)
	steps = []step{{name: "A", command: "a | b"}, {name: "B", command: "b"}, {name: "C", command: "c"}, {name: "D", command: "d"}}
	ctx, interrupt := context.WithCancel(t.Context())
	var ran []string
	page := ""
	run := func(ctx context.Context, again bool) error {
		e := parseEvidence(page, commit)
		e.date, e.machines = "2026-01-02", []string{"2 processors"}
		v := &verification{dir: t.TempDir(), out: io.Discard}
		v.page = func(results []result) error {
			e.results = results
			page = e.page()
			return nil
		}
		v.sh = func(ctx context.Context, command string, log io.Writer) error {
			ran = append(ran, command[:1])
			fmt.Fprintf(log, "%s says\n1 passed\n", command)
			switch {
			case command == "b":
				return errors.New("exit status 1")
			case command == "c" && len(ran) == 3:
				interrupt()
				return ctx.Err()
			}
			return nil
		}
		return v.steps(ctx, steps[:3], e.results, again)
	}
	if err := run(ctx, false); !errors.Is(err, context.Canceled) {
		t.Errorf("interrupted: %v", err)
	}
	if err := run(t.Context(), false); err == nil {
		t.Error("no error although a step has failed")
	}
	if err := run(t.Context(), true); err == nil {
		t.Error("no error although a step has failed again")
	}
	if got, want := fmt.Sprint(ran), "[a b c c b]"; got != want {
		t.Errorf("ran %s, want %s", got, want)
	}
	for _, want := range []string{"0123456789ab of 2026-01-02", "2 processors", "4: 2 ok, 1 failed, 1 not run", "a | b says\n1 passed"} {
		if !strings.Contains(page, want) {
			t.Errorf("the page lacks %q:\n%s", want, page)
		}
	}
	if again := parseEvidence(page, commit); again.page() != strings.Replace(page, " of 2026-01-02", " of ", 1) {
		t.Errorf("the page\n%s\nwas read as\n%s", page, again.page())
	}
	page = strings.Replace(page, `"Step":"A","OK":true,"NotRun":""`, `"Step":"A","OK":false,"NotRun":"needs root"`, 1)
	ran = nil
	if err := run(t.Context(), false); err == nil || fmt.Sprint(ran) != "[a]" {
		t.Errorf("after a step that was not run: ran %v, %v; want [a], and an error", ran, err)
	}
	if err := verify(t.Context(), regexp.MustCompile("^no$"), false, io.Discard); err == nil {
		t.Error("no error although no step matches")
	}
	if other := parseEvidence(page, "fedcba9876543210"); len(other.results) > 0 {
		t.Errorf("the results of another commit are kept: %+v", other.results)
	}
}

// A step that lacks something says so itself, and counts as neither passed nor
// failed.
func TestStepNotRun(t *testing.T) {
	v := &verification{dir: t.TempDir(), out: io.Discard}
	for _, tt := range []struct {
		says string
		err  error
		want string
	}{
		{"NOT RUN: no network\nmake: Error 3\n", errors.New("exit status 2"), "not run: no network"},
		{"NOT RUN: no network\n", nil, "ok"},
		{"other\n", errors.New("exit status 2"), "**failed**"},
	} {
		v.sh = func(_ context.Context, _ string, log io.Writer) error {
			fmt.Fprint(log, tt.says)
			return tt.err
		}
		if r, err := v.step(t.Context(), step{name: "S"}); err != nil || r.verdict() != tt.want {
			t.Errorf("%q: %s, %v; want %s", tt.says, r.verdict(), err, tt.want)
		}
	}
}
