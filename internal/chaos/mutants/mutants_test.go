package mutants

import (
	"flag"
	"slices"
	"strings"
	"testing"
)

var all = flag.Bool("mutants", false, "plant every mutant and see that it is caught, or run the same without: up to an hour")

const root = "../../.."

// TestMutants is the gate: what catches bugs must catch these. One of them:
//
//	go test ./mutants -run 'TestMutants/^watch-is-deaf$' -v -mutants
func TestMutants(t *testing.T) {
	mutants := load(t)
	if len(mutants) < 75 {
		t.Errorf("%d mutants, want 75 at least", len(mutants))
	}
	if !*all { // as in CI: the other tests here see that every patch can be read and applies
		t.Skip("-mutants plants them; here they were only read")
	}
	planted := 0
	for _, m := range mutants {
		t.Run(m.Name, func(t *testing.T) {
			planted++
			plant(t, m)
		})
	}
	if planted == 0 { // go test passes when nothing is of the name
		t.Fatalf("there is no such mutant, but there are\n\t%s", strings.Join(names(mutants), "\n\t"))
	}
}

// plant checks that m is caught by all that should.
func plant(t *testing.T, m Mutant) {
	t.Log(m.Wrong)
	result, err := m.Try(t.Context(), root, t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	report(t, m.Catch, result.Test)
	if len(m.Campaign.Words) > 0 {
		report(t, m.Campaign, result.Campaign)
	}
}

func report(t *testing.T, c Command, o Outcome) {
	t.Helper()
	if o.Caught {
		t.Logf("caught by %v\n%s", c, excerpt(o.Output))
	} else {
		t.Errorf("survived %v\n%s", c, o.Output)
	}
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

// TestWithoutMutants sees that what is to notice bugs is silent when there are none:
// what fails in any case would catch everything.
func TestWithoutMutants(t *testing.T) {
	if !*all {
		t.Skip("only with -mutants: it runs all that the gate runs")
	}
	copied := t.TempDir()
	if err := copyTree(root, copied); err != nil {
		t.Fatal(err)
	}
	seen := map[string]bool{}
	for _, m := range load(t) {
		for _, c := range []Command{m.Catch, m.Campaign} {
			if len(c.Words) == 0 || seen[c.String()] {
				continue
			}
			seen[c.String()] = true
			t.Run(m.Name, func(t *testing.T) { silent(t, c, copied) })
		}
	}
}

// silent checks that c finds no fault with the tree.
func silent(t *testing.T, c Command, tree string) {
	t.Log(c)
	played := c
	if c.Dir == campaignDir {
		played = c.inTree(t.TempDir())
	}
	if o, err := played.notices(t.Context(), tree); err != nil || o.Caught {
		t.Errorf("it finds fault, and there is no bug: %v\n%s", err, o.Output)
	}
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
	if err := copyTree(root, copied); err != nil {
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
	m, err := parse("It is\nwrong.\ncaught by: go test ./x\ndir: y\n--- a/x\ncaught by: no\ncampaign: no\n")
	if err != nil || m.Wrong != "It is wrong." || m.Catch.String() != "cd y && go test ./x" || len(m.Campaign.Words) != 0 {
		t.Errorf("%+v, %v", m, err)
	}
	m, err = parse("It is wrong.\ncaught by: go test ./x\ncampaign: go run . -rows 2\n--- a/x\n")
	if err != nil || m.Catch.String() != "go test ./x" || m.Campaign.String() != "cd internal/chaos && go run . -rows 2" {
		t.Errorf("%+v, %v", m, err)
	}
}
