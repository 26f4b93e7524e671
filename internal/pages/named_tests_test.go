package pages

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

var testName = regexp.MustCompile("^Test[A-Z][A-Za-z]*$")

// The tests that the pages name for their claims are there.
func TestPagesNameTheirTests(t *testing.T) {
	t.Parallel()
	code := readCode(t, func(name string) bool { return strings.HasSuffix(name, "_test.go") })
	named := map[string]int{}
	for name, p := range readPages(t) {
		for _, q := range p.quotes {
			if !testName.MatchString(q.text) || q.text == "TestMain" || q.text == "TestLong" { // no test
				continue
			}
			named[name]++
			if !strings.Contains(code, "\nfunc "+q.text+"(t *testing.T)") {
				t.Errorf("%s:%d names %s, which is not there", name, q.line, q.text)
			}
		}
	}
	if n := named["docs/deadlocks.md"]; n < 20 {
		t.Errorf("the page on deadlocks names %d tests: is this the page?", n)
	}
}

// readCode reads the Go files of the packages and examples that include wants,
// as one text.
func readCode(t *testing.T, include func(name string) bool) string {
	t.Helper()
	var code strings.Builder
	for _, dir := range []string{"sqllock", "ratelimit", "httpmw", "grpcmw", "internal", "examples"} {
		err := filepath.WalkDir(filepath.Join(root, dir), func(path string, _ fs.DirEntry, err error) error {
			if err != nil || filepath.Ext(path) != ".go" || !include(filepath.Base(path)) {
				return err
			}
			text, err := os.ReadFile(path)
			code.Write(text)
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	return code.String()
}
