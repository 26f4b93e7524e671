package browser_test

import (
	"fmt"
	"strconv"
	"testing"
	"time"

	"github.com/latchkey-go/latchkey/internal/lockertest"
	"github.com/latchkey-go/latchkey/internal/pgtest"
	"github.com/latchkey-go/latchkey/sqllock"
	"github.com/latchkey-go/latchkey/sqllock/lockwatch"
)

// Two other processes hold locks, wait, deadlock and die. Each of that appears on
// pages that are open, and is gone from them when it is over.
func TestLongLive(t *testing.T) {
	needPrograms(t)
	dsn := pgtest.Database(t)
	s := serve(t, dsn, nil)
	locks, waits := s.tab(t, look{}), s.tab(t, look{})
	locks.open(publicPrefix + "locks")
	waits.open(publicPrefix + "waits")
	for _, p := range []*tab{locks, waits} {
		evaluate[bool](p, "window.opened = true") // gone after a reload
	}
	goThrough(t, s, dsn, locks, waits)
	for _, p := range []*tab{locks, waits} {
		if !evaluate[bool](p, "window.opened === true") {
			t.Error("the page was loaded again")
		}
	}
}

// goThrough runs the scenario with two new processes. An open page shows each
// event that the database shows.
func goThrough(t *testing.T, s *site, dsn string, locks, waits *tab) {
	t.Helper()
	wants := func(event string, p *tab, expression string, inDatabase func(*lockwatch.Snapshot) bool) {
		t.Helper()
		lockertest.Eventually(t, event+" in the database", func() bool { return inDatabase(s.snapshot()) })
		p.await(event, expression)
	}
	one := startClient(t, clientOrders{Driver: "pgx", DSN: dsn, Holder: "one", Heartbeat: 200 * time.Millisecond})
	two := startClient(t, clientOrders{Driver: "postgres", DSN: dsn, Holder: "two", Heartbeat: 200 * time.Millisecond})
	const a, b = 0, 1
	first, second := exportKey(a), exportKey(b)

	one.hold(a)
	wants("hold", locks, shows(first), holds(first))
	two.hold(b)
	wants("hold", locks, shows(second), holds(second))

	one.wait(b, a)
	wants("wait", waits, shows(second), hasWaiter(second))

	two.wait(a, b)
	wants("deadlock", waits, "document.querySelectorAll('main .steps li').length === 2",
		func(seen *lockwatch.Snapshot) bool { return len(seen.Cycles()) == 1 })

	// The server gives the key of the dead process to the one that waits.
	dead := holderOf(s.snapshot(), first)
	one.die()
	wants("die", locks, "!"+hasProcess(dead), func(seen *lockwatch.Snapshot) bool { return holderOf(seen, first) == holderOf(seen, second) })
	two.release(b)
	wants("release", locks, "!("+shows(second)+")", func(seen *lockwatch.Snapshot) bool { return !holds(second)(seen) })
	two.die()
}

// shows is an expression that says whether the view has key.
func shows(key sqllock.Key) string {
	return "document.querySelector('main').textContent.includes(" + strconv.Quote(strconv.FormatInt(key.Int64(), 10)) + ")"
}

// hasProcess is an expression that says whether a list of locks has one of the
// server process pid.
func hasProcess(pid int) string {
	return fmt.Sprintf("[...document.querySelectorAll('main tbody tr')].some(r => r.cells.length > 1 && /^process %d\\b/.test(r.cells[1].innerText))", pid)
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
