package main

import "regexp"

// completeProgram is a Go block of a page that is a whole program. The tests of
// internal/pages reject blocks with another fence, and check all others.
var completeProgram = regexp.MustCompile("(?ms)(^<!-- go: does not compile -->\n)?^```go\n(package main\n.*?)^```$")

// getLine is a line with which a page has its reader get modules.
var getLine = regexp.MustCompile(`(?m)^go get [^#\n]*`)

// programs returns the complete Go programs of a page that must compile.
func programs(page string) (all []string) {
	for _, m := range completeProgram.FindAllStringSubmatch(page, -1) {
		if m[1] == "" {
			all = append(all, m[2])
		}
	}
	return all
}
