package browser_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
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
