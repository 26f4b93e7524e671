package browser_test

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/chromedp/chromedp/kb"
)

// focused describes the element that has the focus: its text, or its id.
func (p *tab) focused() string {
	return evaluate[string](p, `(e => e === document.body ? "" : e.tagName.toLowerCase() + " " + (e.id && e.tagName === "INPUT" ? e.id : (e.getAttribute("aria-label") || e.textContent).trim()))(document.activeElement)`)
}

// tabTo presses Tab until the focus is on what is wanted, and returns all that had
// the focus on the way. Each must show that it has it.
func (p *tab) tabTo(want string) (way []string) {
	p.t.Helper()
	for range 60 {
		p.press(kb.Tab)
		now := p.focused()
		way = append(way, now)
		if now != "" && !evaluate[bool](p, `(e => { const s = getComputedStyle(e), b = e.getBoundingClientRect(); return s.outlineStyle !== "none" && parseFloat(s.outlineWidth) >= 2 && b.width > 0 && b.right > 0 })(document.activeElement)`) {
			p.t.Errorf("%s does not show that it has the focus", now)
		}
		if now == want {
			return way
		}
	}
	p.t.Fatalf("Tab never reaches %q: %q", want, way)
	return nil
}

// All that the page offers works with the keyboard alone.
func TestLongKeyboard(t *testing.T) {
	needPrograms(t)
	c := newCrowd(t)
	victim := holderOf(c.snapshot(), exportKey(1))
	p := c.tab(t, look{})
	p.open(publicPrefix + "locks")

	p.press(kb.Tab)
	if got := p.focused(); got != "a Skip to the content" {
		t.Errorf("the first Tab is at %q, want the skip link", got)
	}
	p.press(kb.Enter)
	p.await("the skip link", "document.activeElement.id === 'main'")
	if way := p.tabTo("input namespace"); len(way) != 1 {
		t.Errorf("from the content Tab goes to %q", way)
	}

	p.open(publicPrefix + "locks")
	way := p.tabTo("button Search")
	order := []string{"a Skip to the content", "a Overview", "a Locks", "a Waits", "a Findings", "input namespace", "input id", "button Search"}
	if !inOrder(way, order) {
		t.Errorf("Tab goes to %q, want %q among them, in this order", way, order)
	}

	p.pressShift(kb.Tab)
	p.pressShift(kb.Tab)
	p.press(string(exports))
	p.tabTo("input id")
	p.press(exportID(1))
	p.press(kb.Enter)
	p.await("the result", "location.pathname.endsWith('/search') && document.readyState === 'complete'")
	end := fmt.Sprintf("a End session of process %d", victim)
	p.tabTo(end)
	p.press(kb.Enter)
	p.await("the confirmation", "location.pathname.endsWith('/terminate') && document.readyState === 'complete'")
	p.tabTo(fmt.Sprintf("button End the session of process %d", victim))
	if !processHolds(c.snapshot(), victim) {
		t.Fatal("the session has ended before the confirmation")
	}
	p.press(kb.Enter)
	p.await("the result", "document.body.textContent.includes('The session has been ended')")
}

// inOrder reports whether all elements of want are in list, in this order.
func inOrder(list, want []string) bool {
	for _, w := range want {
		at := slices.Index(list, w)
		if at < 0 {
			return false
		}
		list = list[at+1:]
	}
	return true
}

// A live update keeps the focus, what is typed and where a list is scrolled to.
func TestLongFocusSurvivesUpdates(t *testing.T) {
	needPrograms(t)
	c := newCrowd(t)
	p := c.tab(t, look{Width: 400, Height: 800})
	p.open(publicPrefix + "locks")
	p.await("a live page", "document.getElementById('mode').textContent.startsWith('Live')")

	p.tabTo("input id")
	p.press("user")
	end := fmt.Sprintf("a End session of process %d", holderOf(c.snapshot(), exportKey(2)))
	p.tabTo(end)
	id := evaluate[string](p, "document.activeElement.id")
	scrolled := evaluate[float64](p, "document.getElementById('scroll-locks').scrollLeft")
	if id == "" || scrolled == 0 {
		t.Fatalf("the link has the id %q, and the list is scrolled by %v", id, scrolled)
	}
	for n := range 3 {
		key := exportKey(100 + n)
		c.two.hold(100 + n)
		p.await("a live update", shows(key))
		if got := evaluate[string](p, "document.activeElement.id"); got != id {
			t.Fatalf("after an update the focus is on %q, want %q", got, id)
		}
		if got := evaluate[float64](p, "document.getElementById('scroll-locks').scrollLeft"); got != scrolled {
			t.Errorf("after an update the list is scrolled by %v, want %v", got, scrolled)
		}
	}
	if got := evaluate[string](p, "document.getElementById('id').value"); got != "user" {
		t.Errorf("after updates the field has %q", got)
	}
	if !strings.Contains(p.text(), strconv.FormatInt(exportKey(102).Int64(), 10)) {
		t.Error("the page lost a lock")
	}
}
