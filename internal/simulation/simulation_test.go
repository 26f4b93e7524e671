package simulation

import (
	"flag"
	"fmt"
	"maps"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"
)

// TestSimulation runs random plans of each profile and checks that they break no
// rule. A plan that breaks one is made smaller and written to testdata/rapid. The
// log says how to run it again.
//
// A change of the engine gets many plans:
//
//	go test ./internal/simulation -run 'TestSimulation/late' -rapid.checks 10000
func TestSimulation(t *testing.T) {
	// On one processor a plan runs nearly the same way each time. Only the
	// engine's jitter and the order of select and of maps differ.
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1))
	again := given("rapid.failfile") || given("rapid.seed")
	setChecks(t)
	for _, profile := range profiles {
		t.Run(profile.name, func(t *testing.T) {
			figures := make(map[string]int)
			began := time.Now()
			failed := again
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
			t.Logf("%v: %s", time.Since(began).Round(time.Millisecond), listed(figures))
		})
	}
}

// setChecks sets how many plans of each profile run, unless the command line
// does. With -short rapid runs a fifth of them.
func setChecks(t *testing.T) {
	checks := flag.Lookup("rapid.checks").Value
	if given("rapid.checks") {
		return
	}
	was := checks.String()
	if err := checks.Set("400"); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = checks.Set(was) })
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
	fmt.Fprintf(&b, "%d clients, %d per connection, async %t, drift %d, latency %v, two secrets %t, idle close %v",
		p.Clients, p.PerConn, p.Async, p.Drift, p.Latency, p.TwoSecrets, p.IdleClose)
	for _, step := range p.Steps {
		fmt.Fprintf(&b, "\n  +%v %T%+v", step.After, step.Do, step.Do)
	}
	return b.String()
}
