package places

import (
	"errors"
	"time"

	"github.com/latchkey-go/latchkey/ratelimit"
)

// Full returns the BusyError in err, an error that matches
// [ratelimit.ErrBusy]. If there is none, it is one without a namespace, to try
// again in a second. That of a Limiter costs no allocation.
func Full(err error) *ratelimit.BusyError {
	if full, own := err.(*ratelimit.BusyError); own { //nolint:errorlint // what wraps one is looked at below
		return full
	}
	var full *ratelimit.BusyError
	if errors.As(err, &full) {
		return full
	}
	return &ratelimit.BusyError{RetryAfter: time.Second}
}
