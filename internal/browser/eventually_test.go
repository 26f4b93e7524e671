package browser_test

import (
	"testing"
	"time"
)

// eventually waits until ok is true, and returns the time of that.
func eventually(t *testing.T, what string, ok func() bool) time.Time {
	t.Helper()
	for deadline := time.Now().Add(patience); !ok(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("%s: not within %v", what, patience)
		}
	}
	return time.Now()
}
