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

// A violation by the kit is told apart from an accident of the campaign.
// Neither hides its cause.
func TestViolation(t *testing.T) {
	for _, tt := range []struct {
		name       string
		err, cause error
		violation  bool
	}{
		{"waited without success", asViolation(fmt.Errorf("x: %w", fleet.ErrTimeout)), fleet.ErrTimeout, true},
		{"not drained", asViolation(fmt.Errorf("x: %w", fleet.ErrDrain)), fleet.ErrDrain, true},
		{"could not look", asViolation(io.ErrUnexpectedEOF), io.ErrUnexpectedEOF, false},
		{"another answer", unexpected("x", sqllock.ErrHeld), sqllock.ErrHeld, true},
		{"no answer", unexpected("x", sqllock.ErrUnavailable), sqllock.ErrUnavailable, true},
		{"the caller was away", unexpected("x", context.Canceled), context.Canceled, false},
	} {
		if errors.Is(tt.err, ErrViolated) != tt.violation || !errors.Is(tt.err, tt.cause) {
			t.Errorf("%s: %v, want a violation: %t", tt.name, tt.err, tt.violation)
		}
	}
	if asViolation(nil) != nil {
		t.Error("what came is an error")
	}
}
