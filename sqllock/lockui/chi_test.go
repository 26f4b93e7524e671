package lockui_test

import (
	"net/http"
	"testing"
)

// Routers that say the pattern of a request as chi does need no StripPrefix. The
// mount point without its slash leads to the one with it.
func TestChi(t *testing.T) {
	t.Parallel()
	page := unopened(t)
	for _, tt := range []struct {
		pattern, target string
		want            int
	}{
		{"/admin/locks/*", "/admin/locks/", http.StatusOK},
		{"/admin/locks/*", "/admin/locks/waits", http.StatusOK},
		{"/admin/locks/*", "/admin/locks", http.StatusPermanentRedirect},
		{"/admin/locks", "/admin/locks", http.StatusPermanentRedirect},
		{"/admin/{tenant}/*", "/admin/locks", http.StatusPermanentRedirect},
		{"/admin/locks/*", "/admin/locks/none", http.StatusNotFound},
		{"/admin/locks/*", "/admin/locks?next=//evil.example/", http.StatusPermanentRedirect},
	} {
		got := ask(page, http.MethodGet, tt.target, func(r *http.Request) { r.Pattern, r.RequestURI = tt.pattern, tt.target })
		if got.StatusCode != tt.want || tt.want == http.StatusPermanentRedirect && got.Header.Get("Location") != "./locks/" {
			t.Errorf("%s at %s is %d, Location %q", tt.target, tt.pattern, got.StatusCode, got.Header.Get("Location"))
		}
	}
}
