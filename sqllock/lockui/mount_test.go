package lockui_test

import (
	"io"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"strings"
	"testing"

	"github.com/latchkey-go/latchkey/sqllock/lockui"
)

// The page works wherever it is mounted: it finds its prefix in the pattern of the
// router, and all its links are relative. No escape leads to a view. The mount
// point without its slash leads to the one with it.
func TestMounting(t *testing.T) {
	t.Parallel()
	page := unopened(t, lockui.WithAuthorize(func(*http.Request) bool { return true }))
	backend := httptest.NewServer(page)
	t.Cleanup(backend.Close)
	target, err := url.Parse(backend.URL)
	if err != nil {
		t.Fatal(err)
	}
	proxy := &httputil.ReverseProxy{Rewrite: func(r *httputil.ProxyRequest) { r.SetURL(target); r.SetXForwarded() }}
	at := func(pattern string, h http.Handler) http.Handler {
		mux := http.NewServeMux()
		mux.Handle(pattern, h)
		return mux
	}
	chi := func(pattern string) http.Handler { // which says the pattern and removes no prefix
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			r.Pattern = pattern
			page.ServeHTTP(w, r)
		})
	}
	const moved = http.StatusPermanentRedirect
	for _, tt := range []struct {
		name    string
		handler http.Handler
		target  string
		want    int
	}{
		{"root", at("/", page), "/", 200},
		{"pattern", at("/locks/", page), "/locks/", 200},
		{"view", at("/locks/", page), "/locks/locks", 200},
		{"escaped letter", at("/locks/", page), "/locks/%6cocks", 404},
		{"escaped slash", at("/locks/", page), "/locks/locks%2f", 404},
		{"method", at("GET /locks/", page), "/locks/", 200},
		{"host", at("example.com/locks/", page), "/locks/", 200},
		{"method, host and two segments", at("GET example.com/a/b/", page), "/a/b/", 200},
		{"wildcard", at("/t/{tenant}/locks/", page), "/t/acme/locks/", 200},
		{"wildcard, prefix twice", at("/t/{tenant}/locks/", page), "/t/acme/locks/t/acme/locks/locks", 404},
		{"the rest", at("/locks/{rest...}", page), "/locks/", 200},
		{"escaped prefix", at("/verrou/é/", page), "/verrou/%C3%A9/", 200},
		{"escaped prefix, escaped letter", at("/verrou/é/", page), "/verrou/%C3%A9/%6cocks", 404},
		{"one path, which is no prefix", at("/locks/{$}", page), "/locks/", 404},
		{"no router", page, "/", 200},
		{"no router, no path", page, "http://example.com", 200},
		{"no router, host as path", page, "http://example.com/example.com/", 404},
		{"StripPrefix", at("/a/locks/", http.StripPrefix("/a/locks", page)), "/a/locks/", 200},
		{"StripPrefix that takes the slash", at("/a/locks/", http.StripPrefix("/a/locks/", page)), "/a/locks/", 200},
		{"StripPrefix in front of a mux", at("/a/", http.StripPrefix("/a", at("/locks/", page))), "/a/locks/", 200},
		{"reverse proxy", at("/p/", http.StripPrefix("/p", proxy)), "/p/", 200},
		{"chi", chi("/admin/locks/*"), "/admin/locks/", 200},
		{"chi, no such view", chi("/admin/locks/*"), "/admin/locks/none", 404},
		{"chi, no slash", chi("/admin/locks/*"), "/admin/locks", moved},
		{"chi, pattern without a slash", chi("/admin/locks"), "/admin/locks", moved},
		{"chi, wildcard", chi("/admin/{tenant}/*"), "/admin/locks", moved},
		{"chi, query", chi("/admin/locks/*"), "/admin/locks?next=//evil.example/", moved},
	} {
		t.Run(tt.name, func(t *testing.T) {
			visit := func(target string) (links []string) {
				got := ask(tt.handler, http.MethodGet, target, func(r *http.Request) { r.Host = "example.com" })
				if got.StatusCode != tt.want || tt.want == moved && got.Header.Get("Location") != "./locks/" {
					t.Errorf("%s is %d, Location %q, want %d", target, got.StatusCode, got.Header.Get("Location"), tt.want)
				}
				body, err := io.ReadAll(got.Body)
				if err != nil {
					t.Fatal(err)
				}
				return linksOf(string(body))
			}
			links := visit(tt.target)
			if tt.want == 200 && len(links) < 6 {
				t.Errorf("the page has only the links %q", links)
			}
			for _, link := range links {
				if strings.HasPrefix(link, "/") || strings.Contains(link, "..") {
					t.Errorf("the link %q is not relative", link)
				}
				visit(resolved(t, tt.target, link))
			}
		})
	}
}

// resolved returns where link leads on the page at an address.
func resolved(t *testing.T, address, link string) string {
	t.Helper()
	base, err := url.Parse(address)
	if err != nil {
		t.Fatal(err)
	}
	to, err := base.Parse(link)
	if err != nil {
		t.Fatal(err)
	}
	return to.String()
}

// linksOf returns the addresses of links, scripts and style sheets in body.
func linksOf(body string) (links []string) {
	for _, attribute := range []string{`href="`, `src="`} {
		for _, part := range strings.Split(body, attribute)[1:] {
			if link, _, _ := strings.Cut(part, `"`); link != "" && link[0] != '#' {
				links = append(links, link)
			}
		}
	}
	return links
}
