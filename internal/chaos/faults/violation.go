package faults

import (
	"context"
	"errors"
	"fmt"

	"github.com/latchkey-go/latchkey/internal/chaos/fleet"
)

// ErrViolated is matched by errors that report that a guarantee of the kit did
// not hold. Any other error of Inject is an accident of the campaign, such as a
// server that did not start.
var ErrViolated = errors.New("a guarantee was violated")

// violation makes an error that matches ErrViolated.
func violation(format string, args ...any) error {
	return fmt.Errorf("%w: "+format, append([]any{ErrViolated}, args...)...)
}

// asViolation turns the error of waiting for something guaranteed into one that
// matches ErrViolated, if it did not come. An error of looking for it stays as
// it is.
func asViolation(err error) error {
	if errors.Is(err, fleet.ErrTimeout) || errors.Is(err, fleet.ErrDrain) {
		return violation("%w", err)
	}
	return err
}

// unexpected makes an error of a call that should have ended in another way. It
// matches ErrViolated unless the caller's context ended. The database is well
// where it is used, so ErrUnavailable is no excuse.
func unexpected(what string, err error) error {
	if errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) {
		return fmt.Errorf("%s: %w", what, err)
	}
	return violation("%s: %w", what, err)
}
