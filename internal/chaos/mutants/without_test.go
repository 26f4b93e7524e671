package mutants

import (
	"slices"
	"strings"
	"testing"
)

// TestWithoutMutants sees that what is to notice bugs is silent when there are none:
// what fails in any case would catch everything.
func TestWithoutMutants(t *testing.T) {
	if !*all {
		t.Skip("only with -mutants: it runs all that the gate runs")
	}
	bench := newBench(t)
	for _, c := range together(sliced(t, load(t))) {
		t.Run(c.short(), func(t *testing.T) {
			t.Parallel()
			silent(t, bench, c)
		})
	}
}

// together returns the commands of mutants. Those that differ only in the tests of
// a package are one command, so that the package is linked once.
func together(mutants []Mutant) (all []Command) {
	places := map[string]int{}
	for _, m := range mutants {
		for _, c := range []Command{m.Catch, m.Campaign} {
			rest, pattern := c.withoutTests()
			place, known := places[rest.String()]
			switch last := len(rest.Words) + 1; {
			case len(c.Words) == 0:
			case !known:
				places[rest.String()] = len(all)
				if pattern != "" {
					rest.Words = append(rest.Words, "-run", pattern)
				}
				all = append(all, rest)
			case pattern != "" && !slices.Contains(strings.Split(all[place].Words[last], "|"), pattern):
				all[place].Words[last] += "|" + pattern
			}
		}
	}
	return all
}

// withoutTests returns c without the pattern of its tests, and without their
// timeout, and the pattern. That is "" if there is none, or one with subtests.
func (c Command) withoutTests() (rest Command, pattern string) {
	rest = Command{slices.Clone(c.Words), c.Dir}
	at := slices.Index(c.Words, "-run")
	if at < 0 || at+1 == len(c.Words) || strings.Contains(c.Words[at+1], "/") {
		return rest, ""
	}
	rest.Words = slices.DeleteFunc(slices.Delete(rest.Words, at, at+2), func(word string) bool { return strings.HasPrefix(word, "-timeout=") })
	return rest, c.Words[at+1]
}

func TestTogether(t *testing.T) {
	t.Parallel()
	var mutants []Mutant
	for _, command := range []string{
		"go test ./a -count=1 -timeout=60s -run ^TestA$", "go test ./a -count=1 -run TestB|TestC", "go test ./a -count=1 -run ^TestA$",
		"go test ./b -count=1 -run ^TestA$", "go test ./a -count=1 -run TestD/x", "go test ./a -count=1 -run TestD/x", "true",
	} {
		mutants = append(mutants, Mutant{Catch: Command{Words: strings.Fields(command)}, Campaign: Command{strings.Fields("go run . -rows 1"), campaignDir}})
	}
	var got []string
	for _, c := range together(mutants) {
		got = append(got, c.String())
	}
	want := []string{
		"go test ./a -count=1 -run ^TestA$|TestB|TestC", "cd internal/chaos && go run . -rows 1",
		"go test ./b -count=1 -run ^TestA$", "go test ./a -count=1 -run TestD/x", "true",
	}
	if !slices.Equal(got, want) {
		t.Errorf("got  %q\nwant %q", got, want)
	}
}

// silent checks that c finds no fault with the tree.
func silent(t *testing.T, bench *Bench, c Command) {
	t.Log(c)
	if o, err := bench.Without(t.Context(), c); err != nil || o.Caught {
		t.Errorf("it finds fault, and there is no bug: %v\n%s", err, o.Output)
	}
}
