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

// checkID refuses ids that no honest caller has: an empty one would put all who
// lost theirs into one line, a long one is work that an attacker does not pay
// for, and the rest is read differently by different programs.
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
