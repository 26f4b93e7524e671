package mutants

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// TestTestsExist sees that each test that is to catch a bug is there under its
// name. Otherwise only the gate, which takes an hour, would miss it.
func TestTestsExist(t *testing.T) {
	t.Parallel()
	for _, m := range load(t) {
		names, missing := m.Catch.tests(t, root)
		switch {
		case len(names) == 0:
			t.Errorf("%s: %v names no test", m.Name, m.Catch)
		case len(missing) > 0:
			t.Errorf("%s: %v: there is no test %s", m.Name, m.Catch, strings.Join(missing, ", "))
		}
	}
}

// Of several tests in a pattern each must be there, in a package of the command.
func TestTestsExistSeesWhatIsMissing(t *testing.T) {
	t.Parallel()
	tree := files(t, map[string]string{
		"a/a_test.go":   "package a\n\nfunc TestOne(t *testing.T) {}\nfunc TestTwoKeys(t *testing.T) {}\n",
		"b/b_test.go":   "package b\n\nfunc TestThree(t *testing.T) {}\n",
		"a/TestFour.go": "package a\n\nfunc TestFour() {}\n",
	})
	for _, tt := range []struct {
		command, dir   string
		names, missing []string
	}{
		{"go test ./a -run ^TestOne$", "", []string{"TestOne"}, nil},
		{"go test . -run ^TestOne$", "a", []string{"TestOne"}, nil},
		{"go test ./a -run TestTwo", "", []string{"TestTwo"}, nil},
		{"go test ./a -run TestTwo$", "", []string{"TestTwo"}, []string{"TestTwo"}},
		{"go test ./a -run ^(TestOne|TestTwo)$/^SQLite$", "", []string{"TestOne", "TestTwo"}, []string{"TestTwo"}},
		{"go test ./a -run TestOne|TestThree", "", []string{"TestOne", "TestThree"}, []string{"TestThree"}},
		{"go test ./a ./b -run TestOne|TestThree", "", []string{"TestOne", "TestThree"}, nil},
		{"go test ./a -run TestFour", "", []string{"TestFour"}, []string{"TestFour"}},
		{"go test ./a", "", nil, nil},
	} {
		c := Command{strings.Fields(tt.command), tt.dir}
		names, missing := c.tests(t, tree)
		if !slices.Equal(names, tt.names) || !slices.Equal(missing, tt.missing) {
			t.Errorf("%v: %q, missing %q; want %q, missing %q", c, names, missing, tt.names, tt.missing)
		}
	}
}

var (
	testName = regexp.MustCompile(`Test\w+`)
	testFunc = regexp.MustCompile(`(?m)^func (Test\w+)\(`)
)

// tests returns the tests that the -run of c names, without subtests, and those
// that no package of c in the tree at root has. A name at the end of a pattern
// with $ must be a whole name. Another one may be the beginning of names.
func (c Command) tests(t *testing.T, root string) (names, missing []string) {
	t.Helper()
	at := slices.Index(c.Words, "-run") + 1
	if at == 0 || at == len(c.Words) {
		return nil, nil
	}
	var there []string
	for _, word := range c.Words[:at] {
		if strings.HasPrefix(word, ".") {
			there = append(there, testsIn(t, filepath.Join(root, c.Dir, word))...)
		}
	}
	pattern, _, _ := strings.Cut(c.Words[at], "/")
	names = testName.FindAllString(pattern, -1)
	for _, name := range names {
		if !slices.ContainsFunc(there, func(test string) bool {
			return test == name || strings.HasPrefix(test, name) && !strings.HasSuffix(pattern, "$")
		}) {
			missing = append(missing, name)
		}
	}
	return names, missing
}

// testsIn returns the names of the tests in a folder.
func testsIn(t *testing.T, dir string) (names []string) {
	t.Helper()
	found, err := filepath.Glob(filepath.Join(dir, "*_test.go"))
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range found {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		for _, match := range testFunc.FindAllStringSubmatch(string(text), -1) {
			names = append(names, match[1])
		}
	}
	return names
}
