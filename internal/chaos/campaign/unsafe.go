package campaign

import (
	"errors"

	"github.com/latchkey-go/latchkey/internal/chaos/check"
	"github.com/latchkey-go/latchkey/internal/chaos/fleet"
)

// violations of safety are wrong on a machine of any speed. The others, such as
// a key that came back late, need a processor in time.
var violations = []error{
	check.ErrOverlap, check.ErrResurrected, check.ErrToldLate, check.ErrIllegal, check.ErrSetInPart, check.ErrOverLimit,
	check.ErrTokenFell, check.ErrTokenShared, check.ErrTokenChanged, check.ErrOrder, check.ErrWriteMissing, check.ErrWriteStored,
	check.ErrMarkFell, check.ErrAdvanceMissing, check.ErrAdvanceStored, check.ErrNotPassed, check.ErrMarkRead,
	check.ErrPaidTwice, check.ErrNotPaid, check.ErrDeclined, check.ErrTwoResponses, check.ErrOtherPayload,
	check.ErrTermToken, check.ErrLeadsOn, check.ErrMalformed, fleet.ErrLeftBehind,
}

// Unsafe returns the violations of safety in err, which a campaign has
// returned: double grants, stale writes, locks that are never free again. It
// returns nil if there are none.
func Unsafe(err error) error {
	var found []error
	for _, v := range violations {
		if errors.Is(err, v) {
			found = append(found, v)
		}
	}
	return errors.Join(found...)
}
