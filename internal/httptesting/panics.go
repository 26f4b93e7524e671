package httptesting

import (
	"strings"
	"testing"
)

// WantPanic fails the test unless misuse panics with a text that begins with the
// name of the package, and holds part.
func WantPanic(tb testing.TB, pkg, part string, misuse func()) {
	tb.Helper()
	defer func() {
		tb.Helper()
		if text, _ := recover().(string); !strings.HasPrefix(text, pkg+": ") || !strings.Contains(text, part) {
			tb.Errorf("panic %q, want one that begins with %q and holds %q", text, pkg+": ", part)
		}
	}()
	misuse()
}
