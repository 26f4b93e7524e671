package browser_test

import (
	"fmt"
	"strconv"
	"strings"
	"testing"

	"github.com/chromedp/chromedp/kb"
)

// focused describes the element that has the focus: its text, or its id.
func (p *tab) focused() string {
	return evaluate[string](p, `(e => e === document.body ? "" : e.tagName.toLowerCase() + " " + (e.id && e.tagName === "INPUT" ? e.id : (e.getAttribute("aria-label") || e.textContent).trim()))(document.activeElement)`)
}

// tabTo presses Tab until the focus is on what is wanted. All that has the focus on
// the way must show it.
func (p *tab) tabTo(want string) {
	p.t.Helper()
	var way []string
	for range 60 {
		p.press(kb.Tab)
		now := p.focused()
		way = append(way, now)
		if now != "" && !evaluate[bool](p, `(e => { const s = getComputedStyle(e), b = e.getBoundingClientRect(); return s.outlineStyle !== "none" && parseFloat(s.outlineWidth) >= 2 && b.width > 0 && b.right > 0 })(document.activeElement)`) {
			p.t.Errorf("%s does not show that it has the focus", now)
		}
		if now == want {
			return
		}
	}
	p.t.Fatalf("Tab never reaches %q: %q", want, way)
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
