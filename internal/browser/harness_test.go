package browser_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"

	"github.com/latchkey-go/latchkey/internal/lockertest"
)

// openPage opens a page with this body, whose policy allows little.
func openPage(t *testing.T, body string) *tab {
	t.Helper()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/" {
			http.NotFound(w, r)
			return
		}
		w.Header().Set("Content-Security-Policy", "default-src 'none'; script-src 'nonce-n'; style-src 'nonce-n'; img-src 'self'")
		_, _ = fmt.Fprintf(w, "<!doctype html><html lang=en><title>Harness</title><main><h1>Harness</h1>%s</main>", body)
	}))
	t.Cleanup(server.Close)
	p := newTab(t, server.URL, look{})
	p.open("/")
	return p
}

// The tab notices what it exists to notice. Without this test a harness that
// sees nothing would find every page faultless.
func TestLongHarnessNotices(t *testing.T) {
	elsewhere := httptest.NewServer(http.NotFoundHandler())
	t.Cleanup(elsewhere.Close)
	for _, tt := range []struct{ name, body, want string }{
		{"dialog", `<script nonce=n>setTimeout(() => alert("hello"))</script>`, "dialog: hello"},
		{"inline script", `<script>document.title = "run"</script>`, "policy violated: script-src"},
		{"image of another origin", fmt.Sprintf(`<img alt="" src="%s/pixel">`, elsewhere.URL), "policy violated: img-src"},
		{"exception", `<script nonce=n>throw new Error("oops")</script>`, "exception: "},
		{"console", `<script nonce=n>console.error("oops")</script>`, "console: oops"},
		{"nothing", `<p>hello</p>`, ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			p := openPage(t, tt.body)
			if tt.want == "" {
				evaluate[bool](p, "new Promise(done => setTimeout(() => done(true), 100))")
				return
			}
			var seen []string
			lockertest.Eventually(t, tt.want, func() bool {
				seen = append(seen, p.take()...)
				return slices.ContainsFunc(seen, func(s string) bool { return strings.HasPrefix(s, tt.want) })
			})
		})
	}
}

// axe-core finds what is wrong with a page, and with nothing else.
func TestLongHarnessFindsViolations(t *testing.T) {
	for _, tt := range []struct{ name, body, want string }{
		{"contrast", `<style nonce=n>.pale { color: #ccc }</style><p><span class=pale>pale</span></p>`, "color-contrast"},
		{"label", `<input type=text>`, "label"},
		{"nothing", `<p>hello</p>`, ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			p := openPage(t, tt.body)
			var got []string
			for _, v := range p.violations() {
				got = append(got, v.ID)
			}
			if strings.Join(got, " ") != tt.want {
				t.Errorf("violations %q, want %q", got, tt.want)
			}
		})
	}
}
