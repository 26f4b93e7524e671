package ratelimit

import (
	"fmt"
	"strings"
	"unicode/utf8"
)

const defaultMaxIDLen = 1 << 10

var (
	errEmptyID = fmt.Errorf("%w: it is empty", ErrBadID)
	errNotUTF8 = fmt.Errorf("%w: it is not UTF-8", ErrBadID)
	errNULInID = fmt.Errorf("%w: it holds a NUL byte", ErrBadID)
)

// checkID rejects ids that no honest caller has:
//
//   - All requests that lost their id would share an empty one.
//   - A long id costs work for which an attacker does not pay.
//   - Programs read other malformed ids differently.
func (l *Limiter) checkID(id string) error {
	switch {
	case id == "":
		return errEmptyID
	case len(id) > l.maxIDLen:
		return fmt.Errorf("%w: it is longer than %d bytes", ErrBadID, l.maxIDLen)
	case !utf8.ValidString(id):
		return errNotUTF8
	case strings.IndexByte(id, 0) >= 0:
		return errNULInID
	}
	return nil
}
