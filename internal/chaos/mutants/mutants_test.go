package mutants

import (
	"flag"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"
)

var (
	all   = flag.Bool("mutants", false, "plant every mutant and see that it is caught, or run the same without")
	slice = flag.String("slice", "1/1", "with -mutants: only the `i/n`th part of all")
	page  = flag.Bool("page", false, "write docs/planted-bugs.md, with the times of what was planted")
	trees = flag.Int("trees", 2, "how many tests run at the same time")
)

const (
	root     = "../../.."
	pageName = root + "/docs/planted-bugs.md"
)

// TestMutants is the gate: what catches bugs must catch these. One of them:
//
//	go test ./mutants -run 'TestMutants/^watch-is-deaf$' -v -mutants
func TestMutants(t *testing.T) {
	mutants := load(t)
	taken := 0
	for _, m := range mutants {
		if m.From != "" {
			taken++
		}
	}
	if len(mutants) < 90 || taken < 20 {
		t.Errorf("%d mutants, %d of them from other projects; want 90 and 20 at least", len(mutants), taken)
	}
	if !*all { // as in CI: the other tests here see that every patch can be read and applies
		t.Skip("-mutants plants them; here they were only read")
	}
	part := sliced(t, mutants)
	bench, done := newBench(t), newTimes(t, mutants)
	planted := 0
	for _, m := range part {
		t.Run(m.Name, func(t *testing.T) {
			planted++
			t.Parallel()
			done.note(t, m.Name, plant(t, bench, m))
		})
	}
	if planted == 0 { // go test passes when nothing is of the name
		t.Fatalf("there is no such mutant, but there are\n\t%s", strings.Join(names(part), "\n\t"))
	}
}

// sliced returns the part of all that the flag names.
func sliced[E any](t *testing.T, all []E) (part []E) {
	t.Helper()
	var i, n int
	if _, err := fmt.Sscanf(*slice, "%d/%d", &i, &n); err != nil || i < 1 || i > n {
		t.Fatalf("-slice %s: want i/n", *slice)
	}
	for at, e := range all {
		if at%n == i-1 {
			part = append(part, e)
		}
	}
	return part
}

// newBench returns a Bench with trees in the user's cache.
func newBench(t *testing.T) *Bench {
	t.Helper()
	var dirs []string
	for range *trees {
		p, err := openPlace()
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = p.close() })
		dirs = append(dirs, p.dir)
	}
	return NewBench(root, dirs...)
}

// doneTimes are the times for the page.
type doneTimes struct {
	page    *Page
	mutants []Mutant
	mu      sync.Mutex // protects times, and the file of the page
	times   map[string]Times
}

// newTimes returns the times on the page.
func newTimes(t *testing.T, mutants []Mutant) *doneTimes {
	t.Helper()
	p, err := OpenPage(pageName)
	if err != nil {
		t.Fatal(err)
	}
	return &doneTimes{page: p, mutants: mutants, times: p.Times()}
}

// note notes the times of a mutant. If that is wanted, it writes the page, so that
// a run that is broken off has written what it knows.
func (d *doneTimes) note(t *testing.T, name string, times Times) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.times[name] = times
	if !*page {
		return
	}
	if err := d.page.Write(d.mutants, d.times); err != nil {
		t.Error(err)
	}
}

// plant checks that m is caught by all that should, and returns in which time.
func plant(t *testing.T, bench *Bench, m Mutant) Times {
	t.Log(m.Wrong)
	result, err := bench.Try(t.Context(), m)
	if err != nil {
		t.Fatal(err)
	}
	var times Times
	times.Test = report(t, m.Catch, result.Test)
	if len(m.Campaign.Words) > 0 {
		times.Campaign = report(t, m.Campaign, result.Campaign)
	}
	return times
}

// TestPage sees that the page has the bugs of this folder, with their texts. If
// it has not, write it again:
//
//	go test ./mutants -run TestPage -page
func TestPage(t *testing.T) {
	mutants := load(t)
	p, err := OpenPage(pageName)
	if err != nil {
		t.Fatal(err)
	}
	if *page && !*all {
		if err := p.Write(mutants, p.Times()); err != nil {
			t.Fatal(err)
		}
	}
	if !p.Matches(mutants) {
		t.Error("docs/planted-bugs.md is not about these patches: cd internal/chaos && go test ./mutants -run TestPage -page")
	}
}

// report logs how a command ended, and returns how long it took to catch the bug;
// 0 if it has not.
func report(t *testing.T, c Command, o Outcome) time.Duration {
	t.Helper()
	if !o.Caught {
		t.Errorf("survived %v\n%s", c, o.Output)
		return 0
	}
	t.Logf("caught by %v in %.1f s\n%s", c, o.Took.Seconds(), excerpt(o.Output))
	return o.Took
}

// excerpt is how output begins, where a test says what was wrong, and how it ends, where
// a campaign does.
func excerpt(output string) string {
	const few, wide = 8, 200
	lines := strings.Split(strings.TrimSpace(output), "\n")
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

func load(t *testing.T) []Mutant {
	t.Helper()
	mutants, err := Load(".")
	if err != nil {
		t.Fatal(err)
	}
	return mutants
}

func names(mutants []Mutant) (all []string) {
	for _, m := range mutants {
		all = append(all, m.Name)
	}
	return all
}

// Enough of the mutants are seen by the campaign, not only by a test made for
// them.
func TestCampaignSeesMutants(t *testing.T) {
	t.Parallel()
	n := 0
	for _, m := range load(t) {
		if len(m.Campaign.Words) > 0 {
			n++
		}
	}
	if n < 8 {
		t.Errorf("%d mutants are for the campaign, want 8 at least", n)
	}
}

// TestPatchesApply sees that no patch has gone stale.
func TestPatchesApply(t *testing.T) {
	t.Parallel()
	copied := t.TempDir()
	if err := mirror(root, copied); err != nil {
		t.Fatal(err)
	}
	for _, m := range load(t) {
		if out, err := apply(t.Context(), copied, m.patch, "--check"); err != nil {
			t.Errorf("%s does not apply cleanly: %v\n%s", m.Name, err, out)
		}
	}
}

func TestParse(t *testing.T) {
	t.Parallel()
	for _, text := range []string{"", "caught by: go test\n", "It is wrong.\n", "It is wrong.\ncampaign: go run .\n"} {
		if _, err := parse(text + "--- a/x\n"); err == nil {
			t.Errorf("%q: no error", text)
		}
	}
	m, err := parse("It is\nwrong.\nfrom: a/b #1\ncaught by: go test ./x\ndir: y\n--- a/x\ncaught by: no\ncampaign: no\nfrom: no\n")
	if err != nil || m.Wrong != "It is wrong." || m.From != "a/b #1" || m.Catch.String() != "cd y && go test ./x" || len(m.Campaign.Words) != 0 {
		t.Errorf("%+v, %v", m, err)
	}
	m, err = parse("It is wrong.\ncaught by: go test ./x\ncampaign: go run . -rows 2\n--- a/x\n")
	if err != nil || m.Catch.String() != "go test ./x" || m.Campaign.String() != "cd internal/chaos && go run . -rows 2" {
		t.Errorf("%+v, %v", m, err)
	}
}
