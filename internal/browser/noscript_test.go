package browser_test

import (
	"strconv"
	"strings"
	"testing"

	"github.com/latchkey-go/latchkey/internal/lockertest"

	"github.com/latchkey-go/latchkey/sqllock/lockui"
	"github.com/latchkey-go/latchkey/sqllock/lockwatch"
)

// With JavaScript off every view can be read, the search works, and a session can
// be ended.
func TestLongWithoutScript(t *testing.T) {
	needPrograms(t)
	c := newCrowd(t, lockui.WithNames())
	p := c.tab(t, look{NoScript: true})
	first, second := exportKey(1), exportKey(2)
	number := func(n int) string { return strconv.FormatInt(exportKey(n).Int64(), 10) }

	for _, v := range []struct {
		path string
		want []string
	}{
		{"", []string{"Locks held", "main", string(exports)}},
		{"locks", []string{number(1), number(2), "monthly report", "export-7d9f-2"}},
		{"waits", []string{number(1), number(2), "Cycle 1"}},
		{"findings", []string{"Findings"}},
	} {
		p.open(publicPrefix + v.path)
		p.wants(v.path, v.want...)
	}
	if live := "document.getElementById('mode').textContent.startsWith('Live')"; evaluate[bool](p, live) {
		t.Error("the page says that it is live")
	}

	p.open(publicPrefix + "locks")
	p.search(string(exports), exportID(1))
	p.wants("search", number(1), "monthly report")
	if strings.Contains(p.text(), number(2)+"\tprocess") {
		t.Error("search: the result has the lock of another id")
	}
	for _, url := range p.requested() {
		if strings.Contains(url, exportID(1)) {
			t.Errorf("the id is in the address %s", url)
		}
	}

	p.examine()
	p.wants("doctor", "The worst state is")

	victim := holderOf(c.snapshot(), first)
	p.open(publicPrefix + "locks")
	p.follow("a[href*='pid=" + strconv.Itoa(victim) + "&']")
	p.wants("confirmation", "This ends the server session of process "+strconv.Itoa(victim))
	if holderOf(c.snapshot(), first) != victim {
		t.Fatal("the session has ended before the confirmation")
	}
	p.follow("main form button.danger")
	p.wants("result", "The session has been ended")
	lockertest.Eventually(t, "the session has ended", func() bool {
		return !processHolds(c.snapshot(), victim) && holderOf(c.snapshot(), second) != 0
	})
}

// wants fails the test for each text that a reader of the page does not see.
func (p *tab) wants(what string, texts ...string) {
	p.t.Helper()
	shown := p.text()
	for _, text := range texts {
		if !strings.Contains(shown, text) {
			p.t.Errorf("%s: the page does not show %q, but:\n%s", what, text, shown)
		}
	}
}

// processHolds reports whether the server process pid holds a lock.
func processHolds(seen *lockwatch.Snapshot, pid int) bool {
	for _, h := range seen.Holders {
		if h.Process.PID == pid {
			return true
		}
	}
	return false
}
