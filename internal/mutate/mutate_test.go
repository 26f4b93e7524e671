package main

import (
	"errors"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// What the list names is in the code.
func TestSurvivorsExist(t *testing.T) {
	t.Chdir("../..")
	list, err := readList()
	if err != nil {
		t.Fatal(err)
	}
	for mutant, reason := range list {
		path, _, _ := strings.Cut(mutant, " ")
		_, changed, _ := strings.Cut(mutant[len(path)+1:], " ")
		source, err := os.ReadFile(path)
		code, _, _ := strings.Cut(strings.Replace(changed, "»", "", 1), " »")
		if err != nil || !strings.Contains(string(source), code) || tests[filepath.Dir(path)] == nil {
			t.Errorf("%s: not in the code: %s", listPage, mutant)
		}
		if strings.Contains(reason, "»") {
			t.Errorf("%s: no reason for %s", listPage, mutant)
		}
	}
}

// The conditions of a switch are covered where the switch is.
func TestCases(t *testing.T) {
	t.Chdir(t.TempDir())
	const source = `package x

func sign(n int) int {
	switch {
	case n < 0:
		return -1
	case n > 0:
		return 1
	}
	return 0
}
`
	if err := os.WriteFile("x.go", []byte(source), 0o600); err != nil {
		t.Fatal(err)
	}
	const name = module + "/x.go"
	for count, want := range map[string]string{"0": "", "1": name + ":5.2,5.12 1 1\n" + name + ":7.2,7.12 1 1\n"} {
		got, err := cases("mode: set\n" + name + ":3.22,4.9 1 " + count + "\n" + name + ":6.3,6.12 1 0\n")
		if err != nil || got != want {
			t.Errorf("covered %s times: %q and %v, want %q", count, got, err, want)
		}
	}
}

// The second of two equal lines is known by its number, also if the first is
// caught.
func TestJudgeEqualLines(t *testing.T) {
	t.Chdir(t.TempDir())
	const mutant = "ratelimit/x.go INVERT_LOOPCTRL »break"
	source, list := "break\nbreak\n", mutant+"\nequivalent: it is the first.\n"
	report := `{"files": [{"file_name": "x.go", "mutations": [
		{"line": 2, "column": 1, "type": "INVERT_LOOPCTRL", "status": "LIVED"},
		{"line": 1, "column": 1, "type": "INVERT_LOOPCTRL", "status": "KILLED"}]}]}`
	for name, text := range map[string]string{"ratelimit/x.go": source, listPage: list, "report": report} {
		if err := errors.Join(os.MkdirAll(filepath.Dir(name), 0o700), os.WriteFile(name, []byte(text), 0o600)); err != nil {
			t.Fatal(err)
		}
	}
	if err := judge("ratelimit", "report", regexp.MustCompile("")); err == nil || !strings.Contains(err.Error(), "1 survivors are not in") {
		t.Errorf("the second line is judged: %v", err)
	}
}
