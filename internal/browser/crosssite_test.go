package browser_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/chromedp/cdproto/network"

	"github.com/latchkey-go/latchkey/internal/dbtest"
	"github.com/latchkey-go/latchkey/internal/pgtest"
	"github.com/latchkey-go/latchkey/sqllock/lockui"
)

// attack serves an attacker's page at /, and returns its port.
func attack(t *testing.T, html string) (port string) {
	t.Helper()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		_, _ = fmt.Fprintf(w, "<!doctype html><html lang=en><title>Attack</title>%s", html)
	}))
	t.Cleanup(server.Close)
	return server.URL[strings.LastIndexByte(server.URL, ':')+1:]
}

// attackers are hosts of an attacker's page: another site, and another port of
// the same host, which browsers call the same site.
var attackers = map[string]string{"another site": strangeHost, "the same site": "127.0.0.1"}

// A page of another origin makes the browser of an operator send what ends a
// session. It does not end.
func TestLongCrossSitePost(t *testing.T) {
	needPrograms(t)
	c := newCrowd(t)
	victim := holderOf(c.snapshot(), exportKey(1))
	address := c.confirmation(victim)
	path, query, _ := strings.Cut(address, "?")
	var fields strings.Builder
	for field := range strings.SplitSeq(query, "&") {
		name, value, _ := strings.Cut(field, "=")
		fmt.Fprintf(&fields, "<input type=hidden name=%s value=%s>", name, value)
	}
	target := c.origin + path
	for kind, host := range attackers {
		t.Run(kind, func(t *testing.T) {
			form := attack(t, fmt.Sprintf("<form method=post action=%q>%s<button>Win a prize</button></form>", target, fields.String()))
			p := newTab(t, "http://"+host+":"+form, look{})
			p.open("/")
			p.follow("button")
			p.wants("the form", "came from another web site")
			p.take() // requests to another origin are what the attacker's page is for

			script := attack(t, "<p>Win a prize")
			q := newTab(t, "http://"+host+":"+script, look{})
			q.open("/")
			evaluate[string](q, fmt.Sprintf(`fetch(%q, {method: "POST", mode: "no-cors", credentials: "include", headers: {"Content-Type": "application/x-www-form-urlencoded"}, body: %q}).then(r => r.type, e => "failed")`, target, query))
			if got := evaluate[string](q, fmt.Sprintf(`fetch(%q).then(r => r.text(), e => "not readable")`, c.origin+publicPrefix+"locks")); got != "not readable" {
				t.Errorf("another origin reads the page: %s", shortened(got))
			}
			q.take()
			if !processHolds(c.snapshot(), victim) {
				t.Error("the session was ended")
			}
		})
	}
	// The same form, from the page itself, does end it: the attack above lacks
	// nothing but the right origin.
	p := c.tab(t, look{})
	p.open(address)
	p.follow("main form button.danger")
	p.wants("the page's own form", "The session has been ended")
}

// The page appears in no frame, so that no other page can have an operator click
// where the attacker wants.
func TestLongFramed(t *testing.T) {
	needPrograms(t)
	s := serve(t, pgtest.Database(t), nil)
	harmless := attack(t, "<p>hello")
	for _, tt := range []struct {
		name, address string
		refused       bool
	}{
		{"the page", s.origin + publicPrefix, true},
		{"a page that may be framed", "http://127.0.0.1:" + harmless, false},
	} {
		for kind, host := range attackers {
			t.Run(tt.name+" by "+kind, func(t *testing.T) {
				port := attack(t, fmt.Sprintf("<iframe title=prize src=%q></iframe>", tt.address))
				p := newTab(t, "http://"+host+":"+port, look{})
				p.open("/")
				refused := strings.Contains(strings.Join(p.take(), "\n"), "frame-ancestors")
				if refused != tt.refused {
					t.Errorf("refused: %v, want %v", refused, tt.refused)
				}
			})
		}
	}
}

// Without WithAuthorize the page answers only this machine, by its own names: not
// under a name that an attacker's name server gives it, and not through a proxy.
func TestLongAnotherHost(t *testing.T) {
	needPrograms(t)
	page := lockui.New(dbtest.Open(t, "pgx", pgtest.Database(t)))
	mux := http.NewServeMux()
	mux.Handle(backendPrefix, page)
	server := httptest.NewServer(mux)
	t.Cleanup(func() {
		_ = page.Close()
		server.CloseClientConnections()
		server.Close()
	})
	port := server.URL[strings.LastIndexByte(server.URL, ':')+1:]
	for _, tt := range []struct {
		name, host string
		forwarded  string
		want       int64
	}{
		{"an address", "127.0.0.1", "", http.StatusOK},
		{"localhost", "localhost", "", http.StatusOK},
		{"a name of the attacker", strangeHost, "", http.StatusForbidden},
		{"through a proxy", "127.0.0.1", "192.0.2.1", http.StatusForbidden},
	} {
		t.Run(tt.name, func(t *testing.T) {
			p := newTab(t, "http://"+tt.host+":"+port, look{})
			if tt.forwarded != "" {
				call(p, network.SetExtraHTTPHeaders, network.SetExtraHTTPHeadersParams{Headers: network.Headers{"X-Forwarded-For": tt.forwarded}})
			}
			if got := p.open(backendPrefix + "locks"); got != tt.want {
				t.Errorf("status %d, want %d", got, tt.want)
			}
			p.take() // a warning that plain HTTP under such a name is not trustworthy
			if tt.want != http.StatusOK && strings.Contains(p.text(), "Held locks") {
				t.Error("the refusal shows the page")
			}
		})
	}
}
