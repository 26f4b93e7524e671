package lockui_test

import (
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"regexp"
	"strings"
	"testing"

	"github.com/latchkey-go/latchkey/internal/dbtest"
	"github.com/latchkey-go/latchkey/sqllock"
	"github.com/latchkey-go/latchkey/sqllock/lockui"
)

// unopened returns a page on a database that is away.
func unopened(t *testing.T, opts ...lockui.Option) *lockui.Handler {
	t.Helper()
	db := dbtest.Hollow(func(context.Context) error { return io.ErrUnexpectedEOF })
	page := lockui.New(db, opts...)
	t.Cleanup(func() { _ = page.Close(); _ = db.Close() })
	return page
}

// ask sends a request from loopback to page, after change.
func ask(page http.Handler, method, target string, change func(*http.Request)) *http.Response {
	r := httptest.NewRequest(method, target, nil)
	r.RemoteAddr, r.Host = "127.0.0.1:4711", "localhost:8080"
	if change != nil {
		change(r)
	}
	w := httptest.NewRecorder()
	page.ServeHTTP(w, r)
	return w.Result()
}

// Without WithAuthorize only this machine gets the page, and no header of the
// request can pretend to be it.
func TestLoopbackOnly(t *testing.T) {
	t.Parallel()
	page := unopened(t)
	tests := []struct {
		name   string
		change func(*http.Request)
		want   int
	}{
		{"localhost", nil, http.StatusOK},
		{"localhost in capitals", func(r *http.Request) { r.Host = "LOCALHOST" }, http.StatusOK},
		{"address", func(r *http.Request) { r.Host = "127.0.0.1:8080" }, http.StatusOK},
		{"IPv6", func(r *http.Request) { r.Host, r.RemoteAddr = "[::1]:8080", "[::1]:4711" }, http.StatusOK},
		{"IPv6 without a port", func(r *http.Request) { r.Host = "[::1]" }, http.StatusOK},
		{"IPv4 in IPv6", func(r *http.Request) { r.RemoteAddr = "[::ffff:127.0.0.1]:4711" }, http.StatusOK},
		{"from the network", func(r *http.Request) { r.RemoteAddr = "192.0.2.1:4711" }, http.StatusForbidden},
		{"from the network, with a header that lies", func(r *http.Request) {
			r.RemoteAddr = "192.0.2.1:4711"
			r.Header.Set("X-Forwarded-For", "127.0.0.1")
		}, http.StatusForbidden},
		{"unix socket", func(r *http.Request) { r.RemoteAddr = "@" }, http.StatusForbidden},
		{"another host (DNS rebinding)", func(r *http.Request) { r.Host = "evil.example" }, http.StatusForbidden},
		{"another host with our port", func(r *http.Request) { r.Host = "evil.example:8080" }, http.StatusForbidden},
		{"a host that begins like ours", func(r *http.Request) { r.Host = "localhost.evil.example" }, http.StatusForbidden},
		{"a host that begins like an address", func(r *http.Request) { r.Host = "127.0.0.1.evil.example" }, http.StatusForbidden},
		{"no host", func(r *http.Request) { r.Host = "" }, http.StatusForbidden},
		{"any address", func(r *http.Request) { r.Host = "0.0.0.0:8080" }, http.StatusForbidden},
		{"through a proxy", func(r *http.Request) { r.Header.Set("X-Forwarded-For", "192.0.2.1") }, http.StatusForbidden},
		{"through a proxy, RFC 7239", func(r *http.Request) { r.Header.Set("Forwarded", "for=192.0.2.1") }, http.StatusForbidden},
		{"through a proxy that says nothing", func(r *http.Request) { r.Header["X-Forwarded-For"] = []string{""} }, http.StatusForbidden},
		{"through a proxy that adds another header", func(r *http.Request) { r.Header.Set("X-Forwarded-Port", "443") }, http.StatusForbidden},
		{"through Envoy", func(r *http.Request) { r.Header.Set("X-Envoy-External-Address", "192.0.2.1") }, http.StatusForbidden},
		{"through a tunnel", func(r *http.Request) { r.Header.Set("Cf-Connecting-Ip", "192.0.2.1") }, http.StatusForbidden},
		{"a zone", func(r *http.Request) { r.RemoteAddr = "[fe80::1%lo]:4711" }, http.StatusForbidden},
		{"a host of IPv6 that is cut off", func(r *http.Request) { r.Host = "[::1" }, http.StatusForbidden},
		{"through nginx", func(r *http.Request) { r.Header.Set("X-Real-IP", "192.0.2.1") }, http.StatusForbidden},
		{"fetched by another site", func(r *http.Request) {
			r.Header.Set("Sec-Fetch-Site", "cross-site")
			r.Header.Set("Sec-Fetch-Mode", "no-cors")
		}, http.StatusForbidden},
		{"a link on another site", func(r *http.Request) {
			r.Header.Set("Sec-Fetch-Site", "cross-site")
			r.Header.Set("Sec-Fetch-Mode", "navigate")
		}, http.StatusOK},
	}
	for _, tt := range tests {
		for _, target := range []string{"/robots.txt", "/findings"} {
			if got := ask(page, http.MethodGet, target, tt.change); got.StatusCode != tt.want {
				t.Errorf("%s: %s is %d, want %d", tt.name, target, got.StatusCode, tt.want)
			}
		}
	}
	response, body := read(t, ask(page, http.MethodGet, "/", func(r *http.Request) { r.Host = "evil.example" }), nil)
	if response.StatusCode != http.StatusForbidden || !strings.Contains(body, "lockui.WithAuthorize") {
		t.Errorf("the response does not say what to set: %s", body)
	}
}

// WithAuthorize decides alone, for every path.
func TestAuthorize(t *testing.T) {
	t.Parallel()
	page := unopened(t, lockui.WithAuthorize(func(r *http.Request) bool { return r.Header.Get("Authorization") == "Bearer operator" }))
	away := func(r *http.Request) { r.RemoteAddr, r.Host = "192.0.2.1:4711", "ops.example" }
	for _, target := range []string{"/", "/locks", "/search", "/locks?part=changing", "/robots.txt", "/nowhere", ""} {
		r := func(r *http.Request) { away(r); r.URL.Path = target }
		if got := ask(page, http.MethodGet, "/", r); got.StatusCode != http.StatusForbidden {
			t.Errorf("%q without a token is %d, want 403", target, got.StatusCode)
		}
	}
	if got := ask(page, http.MethodGet, "/locks", func(r *http.Request) { away(r); r.Header.Set("Authorization", "Bearer operator") }); got.StatusCode != http.StatusOK {
		t.Errorf("with a token: %d, want 200", got.StatusCode)
	}
}

// Every response has the headers, errors included. The page has nothing inline.
func TestHeaders(t *testing.T) {
	t.Parallel()
	page := unopened(t)
	for _, tt := range []struct{ method, target string }{
		{"GET", "/"}, {"GET", "/locks"}, {"GET", "/nowhere"}, {"DELETE", "/"}, {"GET", "/search"}, {"GET", "/robots.txt"}, {"GET", "/locks?format=json"},
	} {
		h := ask(page, tt.method, tt.target, nil).Header
		policy := h.Get("Content-Security-Policy")
		for _, part := range []string{"default-src 'none'", "script-src 'self'", "style-src 'self'", "frame-ancestors 'none'", "base-uri 'none'", "form-action 'self'"} {
			if !strings.Contains(policy, part) {
				t.Errorf("%v: the policy %q lacks %s", tt, policy, part)
			}
		}
		if strings.Contains(policy, "unsafe") || strings.Contains(policy, "*") {
			t.Errorf("%v: the policy is %q", tt, policy)
		}
		for name, want := range map[string]string{"X-Content-Type-Options": "nosniff", "X-Frame-Options": "DENY", "Cache-Control": "no-store",
			"Referrer-Policy": "same-origin", "X-Robots-Tag": "noindex, nofollow", "Cross-Origin-Resource-Policy": "same-origin"} {
			if h.Get(name) != want {
				t.Errorf("%v: %s is %q, want %q", tt, name, h.Get(name), want)
			}
		}
	}
	_, body := read(t, ask(page, http.MethodGet, "/", nil), nil)
	if found := regexp.MustCompile(`<style|\sstyle=|\son\w+=|javascript:|https?://`).FindString(body); found != "" {
		t.Errorf("%q is in the page", found)
	}
}

// Nothing but the page's own paths and their methods gets a response.
func TestPathsAndMethods(t *testing.T) {
	t.Parallel()
	page := unopened(t)
	for _, target := range []string{"//", "//locks", "/./locks", "/locks/", "/locks/../locks", "/..", "/../locks", "/%2e%2e/locks", "/%6cocks", "/locks%2f", "/locks%00",
		"/LOCKS", "/static/style.css", "/templates/layout.html", "/terminate", "/style-0000000000000000.css", "/\\locks"} {
		r := httptest.NewRequest(http.MethodGet, "/", nil)
		r.RemoteAddr, r.Host = "127.0.0.1:4711", "localhost"
		u, err := url.Parse(target)
		if err != nil {
			u = &url.URL{Path: target}
		}
		if strings.HasPrefix(target, "//") {
			u = &url.URL{Path: target}
		}
		r.URL = u
		w := httptest.NewRecorder()
		page.ServeHTTP(w, r)
		if w.Code != http.StatusNotFound {
			t.Errorf("%s is %d, want 404", target, w.Code)
		}
	}
	for _, tt := range []struct {
		method, target string
		want           int
	}{
		{"HEAD", "/", 200}, {"HEAD", "/locks", 200}, {"POST", "/", 405}, {"PUT", "/locks", 405}, {"GET", "/search", 405},
		{"OPTIONS", "/", 405}, {"TRACE", "/", 405}, {"POST", "/search", 422}, {"GET", "/events", 404},
	} {
		got := ask(page, tt.method, tt.target, nil)
		if got.StatusCode != tt.want {
			t.Errorf("%s %s is %d, want %d", tt.method, tt.target, got.StatusCode, tt.want)
		}
		if tt.want == 405 && got.Header.Get("Allow") == "" {
			t.Errorf("%s %s has no Allow", tt.method, tt.target)
		}
	}
}

// A form on another site reaches nothing.
func TestCrossSitePost(t *testing.T) {
	t.Parallel()
	called := false
	page := unopened(t, lockui.WithTerminate(func(*http.Request) bool { called = true; return true }))
	for _, change := range []func(*http.Request){
		func(r *http.Request) { r.Header.Set("Sec-Fetch-Site", "cross-site") },
		func(r *http.Request) { r.Header.Set("Sec-Fetch-Site", "same-site") },
		func(r *http.Request) {
			r.Header.Set("Sec-Fetch-Site", "cross-site")
			r.Header.Set("Sec-Fetch-Mode", "navigate")
		},
		func(r *http.Request) { r.Header.Set("Origin", "https://evil.example") },
		func(r *http.Request) { r.Header.Set("Origin", "null") },
	} {
		for _, target := range []string{"/terminate?pid=1&start=1", "/search"} {
			if got := ask(page, http.MethodPost, target, change); got.StatusCode != http.StatusForbidden {
				t.Errorf("POST %s is %d, want 403", target, got.StatusCode)
			}
		}
	}
	if called {
		t.Error("a cross-site POST reached the authorization of WithTerminate")
	}
}

// Misuse panics at construction, and says of which option.
func TestMisuse(t *testing.T) {
	t.Parallel()
	for name, misuse := range map[string]func(){
		"New":           func() { lockui.New(nil) },
		"WithSession":   func() { lockui.WithSession("main", nil) },
		"no name":       func() { lockui.WithSession("", &sqllock.Session{}) },
		"WithLimiter":   func() { lockui.WithLimiter(nil) },
		"WithCampaign":  func() { lockui.WithCampaign("mailer", nil) },
		"WithAuthorize": func() { lockui.WithAuthorize(nil) },
		"WithTerminate": func() { lockui.WithTerminate(nil) },
		"WithOperator":  func() { lockui.WithOperator(nil) },
		"WithSchema":    func() { lockui.WithSchema("") },
		"WithLongHeld":  func() { lockui.WithLongHeld(0) },
		"WithLogger":    func() { lockui.WithLogger(nil) },
	} {
		t.Run(name, func(t *testing.T) {
			defer func() {
				if text, _ := recover().(string); !strings.HasPrefix(text, "lockui: ") {
					t.Errorf("panic %q", text)
				}
			}()
			misuse()
		})
	}
}
