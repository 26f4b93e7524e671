package pages

import (
	"os"
	"strings"
	"testing"
)

// The fenced handler in docs/production.md is the one that package httpmw tests
// as an example.
func TestProductionPageHasFencedHandler(t *testing.T) {
	t.Parallel()
	read := func(name string) string {
		text, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		return string(text)
	}
	_, handler, _ := strings.Cut(read("../../httpmw/example_fence_test.go"), "// fenced returns")
	handler, _, ok := strings.Cut(handler, "\n// A handler reports")
	if !ok || !strings.Contains(read("../../docs/production.md"), handler) {
		t.Error("the page has another handler")
	}
}
