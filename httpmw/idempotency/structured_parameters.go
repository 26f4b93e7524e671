package idempotency

import (
	"strconv"
	"strings"
	"unicode/utf8"
)

// The characters of structured fields (RFC 9651, 3.1.2 and 3.3).
const (
	digits   = "0123456789"
	lower    = "abcdefghijklmnopqrstuvwxyz"
	alphas   = lower + "ABCDEFGHIJKLMNOPQRSTUVWXYZ"
	inName   = lower + digits + "_-.*"
	inToken  = alphas + digits + "!#$%&'*+-.^_`|~:/"
	inBase64 = alphas + digits + "+/="
)

// areParameters reports whether all of s is parameters of structured fields
// (RFC 9651, 4.2.3.2), such as ;a;b=1;c="x". None at all are parameters too.
func areParameters(s string) bool {
	for s != "" {
		name, ok := strings.CutPrefix(s, ";")
		if !ok {
			return false
		}
		name = strings.TrimLeft(name, " ")
		if name == "" || strings.IndexByte(lower+"*", name[0]) < 0 {
			return false
		}
		s = strings.TrimLeft(name, inName)
		if value, ok := strings.CutPrefix(s, "="); !ok { // a name alone means true
			continue
		} else if s, ok = cutBareItem(value); !ok {
			return false
		}
	}
	return true
}

// cutBareItem cuts a bare item off the front of s (RFC 9651, 4.2.3.1).
func cutBareItem(s string) (rest string, ok bool) {
	if s == "" {
		return s, false
	}
	switch c := s[0]; {
	case c == '"':
		_, rest, ok = cutString(s)
		return rest, ok
	case c == '?':
		return s[min(2, len(s)):], strings.HasPrefix(s, "?0") || strings.HasPrefix(s, "?1")
	case c == ':':
		return strings.CutPrefix(strings.TrimLeft(s[1:], inBase64), ":")
	case c == '%':
		return cutDisplayString(s)
	case c == '@':
		rest, ok = cutNumber(s[1:])
		return rest, ok && !strings.Contains(s[:len(s)-len(rest)], ".")
	case c == '-' || strings.IndexByte(digits, c) >= 0:
		return cutNumber(s)
	case strings.IndexByte(alphas+"*", c) >= 0:
		return strings.TrimLeft(s, inToken), true
	}
	return s, false
}

// cutNumber cuts an integer or a decimal off the front of s (RFC 9651, 4.2.4).
func cutNumber(s string) (rest string, ok bool) {
	s = strings.TrimPrefix(s, "-")
	rest = strings.TrimLeft(s, digits)
	whole := len(s) - len(rest)
	fraction, isDecimal := strings.CutPrefix(rest, ".")
	if !isDecimal {
		return rest, 1 <= whole && whole <= 15
	}
	rest = strings.TrimLeft(fraction, digits)
	places := len(fraction) - len(rest)
	return rest, 1 <= whole && whole <= 12 && 1 <= places && places <= 3
}

// cutDisplayString cuts a display string off the front of s (RFC 9651, 4.2.10).
func cutDisplayString(s string) (rest string, ok bool) {
	text, rest, ok := strings.Cut(strings.TrimPrefix(s, `%"`), `"`)
	if !ok || !strings.HasPrefix(s, `%"`) {
		return s, false
	}
	var decoded []byte
	for i := 0; i < len(text); i++ {
		c := text[i]
		if c < ' ' || c > '~' {
			return s, false
		}
		if c == '%' {
			octet := text[i+1 : min(i+3, len(text))]
			if len(octet) != 2 || strings.Trim(octet, digits+"abcdef") != "" {
				return s, false
			}
			n, _ := strconv.ParseUint(octet, 16, 8) // two digits, as was just seen
			c, i = byte(n), i+2
		}
		decoded = append(decoded, c)
	}
	return rest, utf8.Valid(decoded)
}
