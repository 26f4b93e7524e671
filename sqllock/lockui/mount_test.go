package lockui

import (
	"net/http"
	"testing"
)

// The page finds its prefix in every pattern of a ServeMux that ends in a slash or
// stands for the rest, and no escape leads to a view.
func TestPatterns(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		pattern, target string
		want            int
	}{
		{"/locks/", "/locks/", 200},
		{"/locks/", "/locks/locks", 200},
		{"/locks/", "/locks/%6cocks", 404},
		{"/locks/", "/locks/locks%2f", 404},
		{"GET /locks/", "/locks/waits", 200},
		{"example.com/locks/", "/locks/locks", 200},
		{"GET example.com/a/b/", "/a/b/findings", 200},
		{"/t/{tenant}/locks/", "/t/acme/locks/", 200},
		{"/t/{tenant}/locks/", "/t/acme/locks/locks", 200},
		{"/t/{tenant}/locks/", "/t/acme/locks/t/acme/locks/locks", 404},
		{"/locks/{rest...}", "/locks/waits", 200},
		{"/verrou/é/", "/verrou/%C3%A9/locks", 200},
		{"/verrou/é/", "/verrou/%C3%A9/%6cocks", 404},
		{"/locks/{$}", "/locks/", 404},  // which is not a prefix
		{"", "http://example.com", 200}, // without a mux: a target without a path is for the root
		{"", "http://example.com/", 200},
		{"", "http://example.com/locks", 200},
		{"", "http://example.com/example.com/", 404},
	} {
		inBubble(t, func(t *testing.T, h *Handler, _ *fakeDatabase) {
			var root http.Handler = h
			if tt.pattern != "" {
				mux := http.NewServeMux()
				mux.Handle(tt.pattern, h)
				root = mux
			}
			if w := request(root, tt.target); w.Code != tt.want {
				t.Errorf("%s at %s is %d, want %d", tt.target, tt.pattern, w.Code, tt.want)
			}
		})
	}
}
