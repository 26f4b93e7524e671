package faults

import (
	"context"
	"errors"
	"fmt"
	"io"
	"testing"

	"github.com/latchkey-go/latchkey/internal/chaos/fleet"
	"github.com/latchkey-go/latchkey/sqllock"
)

// What the kit did not do is told from what happened to the campaign, and neither
// hides its cause.
func TestPromise(t *testing.T) {
	for _, tt := range []struct {
		name       string
		err, cause error
		promise    bool
	}{
		{"waited in vain", promised(fmt.Errorf("x: %w", fleet.ErrInVain)), fleet.ErrInVain, true},
		{"not drained", promised(fmt.Errorf("x: %w", fleet.ErrDrain)), fleet.ErrDrain, true},
		{"could not look", promised(io.ErrUnexpectedEOF), io.ErrUnexpectedEOF, false},
		{"another answer", wrong("x", sqllock.ErrHeld), sqllock.ErrHeld, true},
		{"no answer", wrong("x", sqllock.ErrUnavailable), sqllock.ErrUnavailable, true},
		{"the caller was away", wrong("x", context.Canceled), context.Canceled, false},
	} {
		if errors.Is(tt.err, ErrPromise) != tt.promise || !errors.Is(tt.err, tt.cause) {
			t.Errorf("%s: %v, want a promise: %t", tt.name, tt.err, tt.promise)
		}
	}
	if promised(nil) != nil {
		t.Error("what came is an error")
	}
}
