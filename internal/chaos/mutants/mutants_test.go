package mutants

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

var (
	slice = flag.String("slice", "", "plant the `i/n`th part of all bugs")
	base  = flag.String("base", "", "the commit that TestLongMutantsChanged compares the tree with")
)

// TestMutants plants the bugs of -slice, and sees that tests catch them.
// `make mutants` and `make repro-NAME` run it.
func TestMutants(t *testing.T) {
	plantAll(t, sliced(t), 0)
}

// TestCampaigns plants the bugs that a campaign must catch as well. Campaigns
// run alone: some of their judgements depend on the machine's speed.
func TestCampaigns(t *testing.T) {
	for _, m := range sliced(t) {
		if len(m.Campaign) == 0 {
			continue
		}
		t.Run(m.Name, func(t *testing.T) {
			out, err := planted(t, m).violated(t.Context(), m.Campaign)
			report(t, m, out, err)
		})
	}
}

// changedBound is how long TestLongMutantsChanged works. A bug whose trial has
// not ended by then is left out, which is no failure.
const changedBound = 6 * time.Minute

// TestLongMutantsChanged plants the bugs in files that have changed since a
// commit: by default where origin/main and this branch parted, or the commit
// before this one. `make mutants-changed BASE=commit` runs it alone.
func TestLongMutantsChanged(t *testing.T) {
	since, changed := changedFiles(t)
	touched := slices.DeleteFunc(mutants(t), func(m Mutant) bool {
		return !slices.ContainsFunc(m.Files, func(file string) bool { return slices.Contains(changed, file) })
	})
	t.Logf("%d of the planted bugs are in files that have changed since %s", len(touched), since)
	// Another run begins with other bugs, in case the time is too short for all.
	rand.Shuffle(len(touched), func(i, j int) { touched[i], touched[j] = touched[j], touched[i] })
	plantAll(t, touched, changedBound)
}

// changedFiles returns the files that differ from a commit, and the commit. The
// test is skipped if there is none.
func changedFiles(t *testing.T) (since string, files []string) {
	t.Helper()
	candidates := []string{*base}
	if *base == "" {
		parted, _ := git(t, "merge-base", "origin/main", "HEAD")
		if head, _ := git(t, "rev-parse", "HEAD"); parted == head {
			parted = "" // main itself
		}
		candidates = []string{parted, "HEAD~1"}
	}
	for _, since := range candidates {
		if since == "" {
			continue
		}
		if list, err := git(t, "diff", "--name-only", since); err == nil {
			return since, strings.Fields(list)
		}
	}
	t.Skip("no earlier commit to compare with, as in a shallow clone")
	return "", nil
}

func git(t *testing.T, args ...string) (string, error) {
	t.Helper()
	c := exec.CommandContext(t.Context(), "git", args...)
	c.Dir = root(t)
	out, err := c.Output()
	return strings.TrimSpace(string(out)), err
}

// plantAll plants bugs one at a time, two of them at the same time. When the
// time is over it leaves out the rest; 0 is without end.
func plantAll(t *testing.T, all []Mutant, within time.Duration) {
	t.Helper()
	begun := time.Now()
	for _, m := range all {
		t.Run(m.Name, func(t *testing.T) {
			t.Parallel()
			ctx := t.Context()
			if within > 0 {
				bounded, cancel := context.WithDeadline(ctx, begun.Add(within))
				defer cancel()
				ctx = bounded
			}
			out, err := planted(t, m).caught(ctx, m)
			if err != nil && errors.Is(ctx.Err(), context.DeadlineExceeded) {
				t.Skipf("left out: %v have passed (make repro-%s plants it)", within, m.Name)
			}
			report(t, m, out, err)
		})
	}
}

// report fails the test of m if nothing has caught the bug.
func report(t *testing.T, m Mutant, out string, err error) {
	t.Helper()
	switch {
	case err != nil:
		t.Errorf("%v\nrepeat: make repro-%s", err, m.Name)
	case out == "":
		t.Errorf("this bug survived the tests, or the campaign, that must catch it: %s\nrepeat: make repro-%s", m.Wrong, m.Name)
	default:
		t.Logf("%s\n%s", m.Wrong, excerpt(out))
	}
}

// excerpt returns the beginning and the end of an output: where a test says what
// is wrong, and where a campaign does.
func excerpt(output string) string {
	const few, wide = 8, 200
	lines := strings.Split(strings.TrimSpace(output), "\n")
	lines = slices.DeleteFunc(lines, func(line string) bool { return strings.HasPrefix(line, "=== ") || strings.Contains(line, "--- PASS") })
	if len(lines) > 2*few {
		lines = slices.Concat(lines[:few], []string{"…"}, lines[len(lines)-few:])
	}
	for i, line := range lines {
		if len(line) > wide {
			lines[i] = strings.ToValidUTF8(line[:wide], "") + "…"
		}
	}
	return strings.Join(lines, "\n")
}

// planted returns the tree with m.
func planted(t *testing.T, m Mutant) tree {
	t.Helper()
	planted, err := plant(t.Context(), root(t), t.TempDir(), m)
	if err != nil {
		t.Fatal(err)
	}
	return planted
}

// sliced returns the mutants that -slice names.
func sliced(t *testing.T) (part []Mutant) {
	t.Helper()
	if *slice == "" {
		t.Skip("takes half an hour: make mutants")
	}
	var i, n int
	if _, err := fmt.Sscanf(*slice, "%d/%d", &i, &n); err != nil || i < 1 || i > n {
		t.Fatalf("-slice %s: want i/n", *slice)
	}
	for at, m := range mutants(t) {
		if at%n == i-1 {
			part = append(part, m)
		}
	}
	return part
}

func mutants(t *testing.T) []Mutant {
	t.Helper()
	mutants, err := load(".")
	if err != nil {
		t.Fatal(err)
	}
	return mutants
}

func root(t *testing.T) string {
	t.Helper()
	root, err := filepath.Abs("../../..")
	if err != nil {
		t.Fatal(err)
	}
	return root
}

// Each patch applies to the tree, and names a package with tests.
func TestPatchesApply(t *testing.T) {
	t.Parallel()
	campaigns := 0
	for _, m := range mutants(t) {
		planted(t, m)
		if tests, err := filepath.Glob(filepath.Join(root(t), m.Run[0], "*_test.go")); err != nil || len(tests) == 0 {
			t.Errorf("%s: no tests in %s", m.Name, m.Run[0])
		}
		if len(m.Campaign) > 0 {
			campaigns++
		}
	}
	if campaigns < 8 {
		t.Errorf("campaigns are to catch %d bugs, want 8", campaigns)
	}
}

// The tree compiles with each patch. A change of the product may end that.
func TestLongPatchesCompile(t *testing.T) {
	for _, m := range mutants(t) {
		for _, file := range m.Files {
			dir := filepath.Join(root(t), filepath.Dir(file))
			if out, err := planted(t, m).run(t.Context(), dir, nil, "build", "-o", os.DevNull, "."); err != nil {
				t.Errorf("%s: %v\n%s", m.Name, err, out)
			}
		}
	}
}

func TestParse(t *testing.T) {
	t.Parallel()
	const diff = "--- a/x.go\n+++ b/x.go\nrun: no\nfrom: no\n--- a/y.go\n"
	for _, text := range []string{diff, "run: x\n" + diff, "It is wrong.\n" + diff, "It is wrong.\nrun: x\n"} {
		if _, err := parse(text); err == nil {
			t.Errorf("%q: no error", text)
		}
	}
	m, err := parse("It is\nwrong.\nfrom: a/b #1\nrun: x -v\ncampaign: -rows 2\n" + diff)
	want := Mutant{Wrong: "It is wrong.", From: "a/b #1", Run: []string{"x", "-v"}, Campaign: []string{"-rows", "2"}, Files: []string{"x.go", "y.go"}}
	if err != nil || fmt.Sprint(m) != fmt.Sprint(want) {
		t.Errorf("%+v, %v; want %+v", m, err, want)
	}
}
