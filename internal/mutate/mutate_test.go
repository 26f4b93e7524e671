package main

import (
	"cmp"
	"errors"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// operators are what the mutants of a kind change.
var operators = map[string][]string{
	"CONDITIONALS_BOUNDARY": {"<=", ">=", "<", ">"},
	"CONDITIONALS_NEGATION": {"==", "!=", "<=", ">=", "<", ">"},
	"INVERT_LOGICAL":        {"&&", "||"},
	"INVERT_LOOPCTRL":       {"break", "continue"},
	"ARITHMETIC_BASE":       {"+", "-", "*", "/", "%"},
	"INCREMENT_DECREMENT":   {"++", "--"},

	"INVERT_BITWISE":          {"&", "|", "^", "<<", ">>"},
	"INVERT_ASSIGNMENTS":      {"+=", "-=", "*=", "/=", "%="},
	"INVERT_BWASSIGN":         {"&=", "|=", "^=", "<<=", ">>="},
	"REMOVE_SELF_ASSIGNMENTS": {"+=", "-=", "*=", "/=", "%=", "&=", "|=", "^=", "<<=", ">>="},
}

// What the list names is in the code.
func TestSurvivorsExist(t *testing.T) {
	t.Chdir("../..")
	list, err := readList()
	if err != nil {
		t.Fatal(err)
	}
	for mutant, reason := range list {
		parts := strings.SplitN(mutant, " ", 4) // the file, the function, the kind and the line
		source, err := os.ReadFile(parts[0])
		if err != nil {
			t.Error(err)
			continue
		}
		function, err := functions(parts[0], source)
		if err != nil {
			t.Fatal(err)
		}
		before, after, _ := strings.Cut(parts[3], "»")
		if !slices.ContainsFunc(operators[parts[2]], func(o string) bool { return strings.HasPrefix(after, o) }) {
			t.Errorf("%s: not an operator of this kind: %s", listPage, mutant)
		}
		after, number, _ := strings.Cut(after, " »")
		want, err := strconv.Atoi(cmp.Or(number, "1"))
		if err != nil {
			t.Error(err)
		}
		found := 0
		for i, line := range strings.Split(string(source), "\n") {
			if strings.TrimSpace(line) == before+after && function(i+1) == parts[1] {
				found++
			}
		}
		if found < want || tests[filepath.Dir(parts[0])] == nil {
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

// The second of two equal lines of a function is known by its number, also if the
// first is caught.
func TestJudgeEqualLines(t *testing.T) {
	t.Chdir(t.TempDir())
	const source = `package x

func f() {
	for {
		break
		break
	}
}

func g() {
	for {
		break
	}
}
`
	list := "ratelimit/x.go f INVERT_LOOPCTRL »break\nequivalent: it is the first.\n"
	report := `{"files": [{"file_name": "x.go", "mutations": [
		{"line": 12, "column": 3, "type": "INVERT_LOOPCTRL", "status": "LIVED"},
		{"line": 6, "column": 3, "type": "INVERT_LOOPCTRL", "status": "LIVED"},
		{"line": 5, "column": 3, "type": "INVERT_LOOPCTRL", "status": "KILLED"}]}]}`
	for name, text := range map[string]string{"ratelimit/x.go": source, listPage: list, "report": report} {
		if err := errors.Join(os.MkdirAll(filepath.Dir(name), 0o700), os.WriteFile(name, []byte(text), 0o600)); err != nil {
			t.Fatal(err)
		}
	}
	if err := judge("ratelimit", "report", regexp.MustCompile("")); err == nil || !strings.Contains(err.Error(), "2 survivors are not in") {
		t.Errorf("the other two lines are judged: %v", err)
	}
}

// Only the compiler's word says that a mutant is not viable.
func TestCompileError(t *testing.T) {
	for out, want := range map[string]bool{
		"# m/x\nx/x.go:3:7: undefined: y\nFAIL\tm/x [build failed]\nFAIL\n":              true,
		"# m/x.test\nlink: mapping output file failed\nFAIL\tm/x [build failed]\nFAIL\n": false,
		"--- FAIL: TestX (0.00s)\n    x_test.go:3: wrong\nFAIL\n":                        false,
	} {
		if got := compileError.MatchString(out); got != want {
			t.Errorf("%t for %q", got, out)
		}
	}
}
