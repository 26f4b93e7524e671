package simulation

import (
	"flag"
	"fmt"
	"maps"
	"runtime"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

// TestSimulation runs plans of each profile and checks that they break no rule.
// The plans are the same each time.
func TestSimulation(t *testing.T) { simulate(t, "400", "1") }

// TestLongSimulation does so with other plans each time. A change of the engine
// gets many:
//
//	cd internal/simulation && go test -run TestLongSimulation/late -rapid.checks 10000
func TestLongSimulation(t *testing.T) { simulate(t, "1000", "0") }

// simulate runs random plans of each profile, unless the command line says how
// many and which. Seed 0 is another one each time.
//
// A plan that breaks a rule is made smaller and written to testdata/rapid. The
// log says how to run it again.
func simulate(t *testing.T, checks, seed string) {
	// On one processor a plan runs nearly the same way each time. Only the
	// engine's jitter and the order of select and of maps differ.
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1))
	again := given("rapid.failfile") || given("rapid.seed")
	preset(t, "rapid.checks", checks)
	preset(t, "rapid.seed", seed)
	for _, profile := range profiles {
		t.Run(profile.name, func(t *testing.T) {
			figures := make(map[string]int)
			failed := again
			defer func() {
				if t.Failed() {
					t.Logf("To repeat it: cd internal/simulation && go test -count=1 -run '^%s$' and the flag -rapid.failfile or -rapid.seed of the line above", t.Name())
				}
			}()
			rapid.Check(t, func(rt *rapid.T) {
				plan := profile.plan().Draw(rt, "plan")
				tries := 1
				if failed { // a plan that broke a rule may not break it every time
					tries = 10
				}
				for range tries {
					figures["plans"]++
					if wrongs := plan.run(t, profile.harmless, figures); len(wrongs) > 0 {
						failed = true
						rt.Logf("%s\n%s", plan, strings.Join(wrongs, "\n"))
						rule, _, _ := strings.Cut(wrongs[0], " (")
						rt.Fatal(rule)
					}
				}
			})
			t.Log(listed(figures))
		})
	}
}

// preset sets a flag until the end of the test, unless the command line does.
func preset(t *testing.T, name, value string) {
	if given(name) {
		return
	}
	f := flag.Lookup(name)
	was := f.Value.String()
	if err := f.Value.Set(value); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = f.Value.Set(was) })
}

// given reports whether the command line has the flag.
func given(name string) (ok bool) {
	flag.Visit(func(f *flag.Flag) { ok = ok || f.Name == name })
	return ok
}

// listed returns figures as a text.
func listed(figures map[string]int) string {
	var words []string
	for _, what := range slices.Sorted(maps.Keys(figures)) {
		words = append(words, fmt.Sprint(figures[what], " ", what))
	}
	return strings.Join(words, ", ")
}

// String returns p as a text for people.
func (p plan) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%d clients, %d per connection, async %t, drift %d, latency %v, idle close %v",
		p.Clients, p.PerConn, p.Async, p.Drift, p.Latency, p.IdleClose)
	for _, step := range p.Steps {
		fmt.Fprintf(&b, "\n  +%v %T%+v", step.After, step.Do, step.Do)
	}
	return b.String()
}
