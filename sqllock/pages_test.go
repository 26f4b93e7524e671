package sqllock_test

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// The tests that the pages name for their claims are there.
func TestPagesNameTheirTests(t *testing.T) {
	t.Parallel()
	files, err := filepath.Glob("*_test.go")
	if err != nil {
		t.Fatal(err)
	}
	var code strings.Builder
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		code.Write(text)
	}
	page, err := os.ReadFile("../docs/deadlocks.md")
	if err != nil {
		t.Fatal(err)
	}
	named := regexp.MustCompile("`(Test[A-Z][A-Za-z]*)`").FindAllStringSubmatch(string(page), -1)
	if len(named) < 20 {
		t.Errorf("the page names %d tests: is this the page?", len(named))
	}
	for _, match := range named {
		if !strings.Contains(code.String(), "\nfunc "+match[1]+"(t *testing.T) {\n") {
			t.Errorf("the page names %s, which is not there", match[1])
		}
	}
}
