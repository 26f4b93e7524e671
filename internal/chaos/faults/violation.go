package faults

import (
	"context"
	"errors"
	"fmt"

	"github.com/latchkey-go/latchkey/internal/chaos/fleet"
)

// ErrViolated is matched by errors that say that a promise of the kit did not hold.
// Any other error of Inject is an accident of the campaign: a fault that could not
// be made, a server that did not start.
var ErrViolated = errors.New("a promise did not hold")

// broken is an ErrViolated.
func violation(format string, args ...any) error {
	return fmt.Errorf("%w: "+format, append([]any{ErrViolated}, args...)...)
}

// promised is err of waiting for something that is promised: that it did not
// come is an ErrViolated, that one could not see is none.
func asViolation(err error) error {
	if errors.Is(err, fleet.ErrTimeout) || errors.Is(err, fleet.ErrDrain) {
		return violation("%w", err)
	}
	return err
}

// wrong is err of a call that should have ended in another way, an ErrViolated
// unless its caller went away. Nothing is wrong with the database where it is
// used, so that ErrUnavailable is no excuse.
func unexpected(what string, err error) error {
	if errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) {
		return fmt.Errorf("%s: %w", what, err)
	}
	return violation("%s: %w", what, err)
}
