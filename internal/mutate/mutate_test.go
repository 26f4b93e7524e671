package main

import (
	"os"
	"path/filepath"
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
