package browser_test

import (
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/chromedp/chromedp"

	"github.com/latchkey-go/latchkey/internal/lockertest"
	"github.com/latchkey-go/latchkey/sqllock/lockui"
	"github.com/latchkey-go/latchkey/sqllock/lockwatch"
)

// looks are those in which every view must work.
var looks = []struct {
	name string
	look look
}{
	{"light", look{}},
	{"dark", look{Dark: true}},
	{"light phone", look{Width: 400, Height: 800}},
	{"dark phone", look{Width: 400, Height: 800, Dark: true}},
}

// Every view is accessible in both themes, on a wide screen and on a phone, and
// no view is wider than the screen.
func TestLongAccessible(t *testing.T) {
	needPrograms(t)
	c := newCrowd(t, lockui.WithNames())
	for _, l := range looks {
		t.Run(l.name, func(t *testing.T) {
			p := c.tab(t, l.look)
			for _, v := range c.views(p) {
				v.open()
				if kind := evaluate[string](p, "document.contentType"); kind == "text/plain" {
					continue
				}
				for _, found := range p.violations() {
					t.Errorf("%s: %v", v.name, found)
				}
				p.fits(v.name)
			}
		})
	}
}

// fits fails the test if the page is wider than the screen.
func (p *tab) fits(what string) {
	p.t.Helper()
	page, screen := evaluate[int64](p, "document.documentElement.scrollWidth"), evaluate[int64](p, "window.innerWidth")
	if page > screen {
		p.t.Errorf("%s: the page is %d pixels wide on a screen of %d", what, page, screen)
	}
}

// A pageOfSite is one page that a reader can get to.
type pageOfSite struct {
	name string
	open func()
}

// views returns all pages: those of the navigation, and those behind forms and
// links.
func (c *crowd) views(p *tab) (all []pageOfSite) {
	t := p.t
	t.Helper()
	p.open(publicPrefix)
	type link struct{ Href, Text string }
	links := evaluate[[]link](p, "[...document.querySelectorAll('nav a')].map(a => ({Href: a.getAttribute('href'), Text: a.textContent.trim()}))")
	for _, want := range []string{"Overview", "Locks", "Waits", "Findings", "Doctor"} {
		if !slices.ContainsFunc(links, func(l link) bool { return l.Text == want }) {
			t.Fatalf("the navigation %v has no %s", links, want)
		}
	}
	for _, l := range links {
		all = append(all, pageOfSite{l.Text, func() {
			if status := p.open(publicPrefix + strings.TrimPrefix(l.Href, "./")); status != http.StatusOK {
				t.Fatalf("%s: status %d", l.Text, status)
			}
		}})
	}
	all = append(all, pageOfSite{"report of the doctor", p.examine})
	for _, id := range []string{exportID(1), "nobody"} {
		all = append(all, pageOfSite{"search for " + id, func() {
			p.open(publicPrefix + "locks")
			p.search(string(exports), id)
		}})
	}
	all = append(all,
		pageOfSite{"a search that is wrong", func() {
			p.open(publicPrefix + "locks")
			p.search("", "no number")
		}},
		pageOfSite{"confirmation", func() { p.open(c.confirmation(holderOf(c.snapshot(), exportKey(1)))) }},
		pageOfSite{"no such page", func() {
			if status := p.open(publicPrefix + "nothing"); status != http.StatusNotFound {
				t.Errorf("no such page: status %d", status)
			}
		}},
		pageOfSite{"no such session", func() {
			p.open(c.confirmation(holderOf(c.snapshot(), exportKey(1))))
			evaluate[bool](p, "(document.querySelector('form input[name=start]').value = 1, true)")
			p.follow("main form button")
		}},
	)
	return all
}

// examine asks for an examination of the database, and loads its report.
func (p *tab) examine() {
	p.t.Helper()
	p.open(publicPrefix + "doctor")
	p.follow("main form button")
	lockertest.Eventually(p.t, "the report", func() bool {
		p.open(publicPrefix + "doctor")
		return evaluate[bool](p, "document.querySelector('main table') !== null")
	})
}

// search fills in the form of the page and sends it.
func (p *tab) search(namespace, id string) {
	p.t.Helper()
	evaluate[bool](p, fmt.Sprintf("(document.getElementById('namespace').value = %q, document.getElementById('id').value = %q, true)", namespace, id))
	p.follow("form.search button")
}

// follow clicks at what selector names, and waits for the page that it leads to.
func (p *tab) follow(selector string) {
	p.t.Helper()
	ctx, cancel := p.within()
	defer cancel()
	if _, err := chromedp.RunResponse(ctx, chromedp.Click(chromedp.CSS(selector))); err != nil {
		p.t.Fatalf("%s: %v", selector, err)
	}
}

// confirmation returns the path of the form that asks whether to end the session
// of the server process pid.
func (s *site) confirmation(pid int) string {
	s.t.Helper()
	for _, h := range s.snapshot().Holders {
		if h.Process.PID == pid {
			return publicPrefix + "terminate?pid=" + strconv.Itoa(pid) + "&start=" + strconv.FormatInt(h.Process.Start.UnixMicro(), 10)
		}
	}
	s.t.Fatalf("process %d holds no lock", pid)
	return ""
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
