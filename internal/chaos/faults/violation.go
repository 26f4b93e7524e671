package faults

import (
	"context"
	"errors"
	"fmt"

	"github.com/latchkey-go/latchkey/internal/chaos/fleet"
)

// ErrPromise is matched by errors that say that a promise of the kit did not hold.
// Any other error of Inject is an accident of the campaign: a fault that could not
// be made, a server that did not start.
var ErrPromise = errors.New("a promise did not hold")

// broken is an ErrPromise.
func broken(format string, args ...any) error {
	return fmt.Errorf("%w: "+format, append([]any{ErrPromise}, args...)...)
}

// promised is err of waiting for something that is promised: that it did not
// come is an ErrPromise, that one could not see is none.
func promised(err error) error {
	if errors.Is(err, fleet.ErrInVain) || errors.Is(err, fleet.ErrDrain) {
		return broken("%w", err)
	}
	return err
}

// wrong is err of a call that should have ended in another way, an ErrPromise
// unless its caller went away. Nothing is wrong with the database where it is
// used, so that ErrUnavailable is no excuse.
func wrong(what string, err error) error {
	if errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) {
		return fmt.Errorf("%s: %w", what, err)
	}
	return broken("%s: %w", what, err)
}
