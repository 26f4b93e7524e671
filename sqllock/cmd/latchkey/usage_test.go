package main

import (
	"os"
	"strings"
	"testing"
)

// The package's documentation has the usage of each command, as --help says it.
func TestUsageInTheDocumentation(t *testing.T) {
	t.Parallel()
	source, err := os.ReadFile("main.go")
	if err != nil {
		t.Fatal(err)
	}
	doc, _, _ := strings.Cut(string(source), "\npackage main\n")
	for _, c := range program().Commands {
		usage := strings.TrimSpace("latchkey " + c.Name + " [options] " + c.ArgsUsage)
		if !strings.Contains(doc, "//\t"+usage+"\n") {
			t.Errorf("the documentation lacks %q", usage)
		}
	}
}
