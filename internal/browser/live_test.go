package browser_test

import (
	"flag"
	"fmt"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/latchkey-go/latchkey/internal/pgtest"
	"github.com/latchkey-go/latchkey/sqllock"
	"github.com/latchkey-go/latchkey/sqllock/lockwatch"
)

var repeats = flag.Int("repeats", 1, "how often TestLive goes through its scenario")

// liveWithin bounds the time from an event, as the database shows it, until an
// open page does. The page promises two seconds. The machine of a test may be
// busy, so the test allows more, and its log has the times.
const liveWithin = 10 * time.Second

// A delay is how long an event took from the database to an open page.
type delay struct {
	event string
	took  time.Duration
}

// Two other processes hold locks, wait, deadlock and die. Each of that appears on
// pages that are open, and is gone from them when it is over.
func TestLive(t *testing.T) {
	needPrograms(t)
	dsn := pgtest.Database(t)
	s := serve(t, dsn, nil)
	locks, waits := s.tab(t, look{}), s.tab(t, look{})
	locks.open(publicPrefix + "locks")
	waits.open(publicPrefix + "waits")
	for _, p := range []*tab{locks, waits} {
		evaluate[bool](p, "window.opened = true") // gone after a reload
	}
	delays := make(map[string][]time.Duration)
	for round := range *repeats {
		for _, d := range goThrough(t, s, dsn, locks, waits, 2*round) {
			delays[d.event] = append(delays[d.event], d.took)
		}
	}
	for _, p := range []*tab{locks, waits} {
		if !evaluate[bool](p, "window.opened === true") {
			t.Error("the page was loaded again")
		}
	}
	for _, event := range []string{"hold", "wait", "deadlock", "release", "die"} {
		d := delays[event]
		slices.Sort(d)
		t.Logf("%-8s on the page after: median %v, longest %v of %d", event, d[len(d)/2].Round(time.Millisecond), d[len(d)-1].Round(time.Millisecond), len(d))
		if longest := d[len(d)-1]; longest > liveWithin {
			t.Errorf("%s: on the page after %v", event, longest)
		}
	}
}

// goThrough runs the scenario once, with two new processes, and keys of which no
// earlier round has left anything: the registry knows the waits of a dead process
// until their lease ends.
func goThrough(t *testing.T, s *site, dsn string, locks, waits *tab, a int) (delays []delay) {
	t.Helper()
	measure := func(event string, p *tab, expression string, inDatabase func(*lockwatch.Snapshot) bool) {
		t.Helper()
		shown := eventually(t, event+" in the database", func() bool { return inDatabase(s.snapshot()) })
		delays = append(delays, delay{event, max(0, p.await(event, expression).Sub(shown))})
	}
	one := startClient(t, clientOrders{Driver: "pgx", DSN: dsn, Holder: "one", Heartbeat: 200 * time.Millisecond})
	two := startClient(t, clientOrders{Driver: "postgres", DSN: dsn, Holder: "two", Heartbeat: 200 * time.Millisecond})
	b := a + 1
	first, second := exportKey(a), exportKey(b)

	one.hold(a)
	measure("hold", locks, shows(first), holds(first))
	two.hold(b)
	measure("hold", locks, shows(second), holds(second))

	one.wait(b, a)
	measure("wait", waits, shows(second), hasWaiter(second))

	two.wait(a, b)
	measure("deadlock", waits, "document.querySelectorAll('main svg g.cycle').length === 2",
		func(seen *lockwatch.Snapshot) bool { return len(seen.Cycles()) == 1 })

	// The server gives the key of the dead process to the one that waits.
	dead := holderOf(s.snapshot(), first)
	one.die()
	measure("die", locks, "!"+hasProcess(dead), func(seen *lockwatch.Snapshot) bool { return holderOf(seen, first) == holderOf(seen, second) })
	two.release(b)
	measure("release", locks, "!("+shows(second)+")", func(seen *lockwatch.Snapshot) bool { return !holds(second)(seen) })
	two.die()
	return delays
}

// The report of the doctor appears on the page that has asked for it.
func TestReportIsLive(t *testing.T) {
	needPrograms(t)
	s := serve(t, pgtest.Database(t), nil)
	p := s.tab(t, look{})
	p.open(publicPrefix + "doctor")
	p.follow("main form button")
	p.await("the report", "document.querySelector('main table') !== null")
}

// shows is an expression that says whether the view has key.
func shows(key sqllock.Key) string {
	return "document.querySelector('main').textContent.includes(" + strconv.Quote(strconv.FormatInt(key.Int64(), 10)) + ")"
}

// hasProcess is an expression that says whether a list of locks has one of the
// server process pid.
func hasProcess(pid int) string {
	return fmt.Sprintf("[...document.querySelectorAll('main tbody tr')].some(r => r.cells.length > 2 && r.cells[2].textContent === '%d')", pid)
}

func holds(key sqllock.Key) func(*lockwatch.Snapshot) bool {
	return func(seen *lockwatch.Snapshot) bool { return holderOf(seen, key) != 0 }
}

func hasWaiter(key sqllock.Key) func(*lockwatch.Snapshot) bool {
	return func(seen *lockwatch.Snapshot) bool {
		_, waiters := seen.Find(key)
		return len(waiters) > 0
	}
}

// holderOf returns the PID of the server process that holds key, or 0.
func holderOf(seen *lockwatch.Snapshot, key sqllock.Key) int {
	holders, _ := seen.Find(key)
	if len(holders) == 0 {
		return 0
	}
	return holders[0].Process.PID
}
