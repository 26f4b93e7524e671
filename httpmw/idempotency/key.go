package idempotency

import (
	"fmt"
	"net/http"
	"strings"

	"github.com/latchkey-go/latchkey/httpmw"
	"github.com/latchkey-go/latchkey/ratelimit"
)

const (
	keyHeader = "Idempotency-Key"
	maxKeyLen = 255
)

var oneKeyHeader = httpmw.Header(keyHeader) // fails if the header is missing or given twice

var errBadKeyHeader = fmt.Errorf("idempotency: header %s: %w: it is not one string of 1 to %d printable ASCII characters",
	keyHeader, ratelimit.ErrBadID, maxKeyLen)

// headerKey returns the value of Idempotency-Key. Only a request without that
// header has no key. An empty value is a bad key, since its client expects
// protection.
func headerKey(r *http.Request) (string, error) {
	if values := r.Header.Values(keyHeader); len(values) == 1 && values[0] == "" {
		return "", errBadKeyHeader
	}
	value, err := oneKeyHeader(r)
	if err != nil {
		return "", err
	}
	key, ok := parseKey(value)
	if !ok || key == "" || len(key) > maxKeyLen {
		return "", errBadKeyHeader
	}
	return key, nil
}

// parseKey reads a bare word, or a string of structured fields (RFC 9651,
// 4.2.3). Parameters of the string must be well-formed, and mean nothing. A
// comma in a bare word is an error, since a proxy may have joined two values.
func parseKey(value string) (key string, ok bool) {
	value = strings.Trim(value, " ")
	if !strings.HasPrefix(value, `"`) {
		return value, !strings.ContainsFunc(value, func(c rune) bool { return c <= ' ' || c > '~' || strings.ContainsRune(`",;\`, c) })
	}
	key, rest, ok := cutString(value)
	return key, ok && areParameters(rest)
}

// cutString cuts the string of structured fields off the front of s (RFC 9651,
// 4.2.5).
func cutString(s string) (text, rest string, ok bool) {
	if !strings.HasPrefix(s, `"`) {
		return "", s, false
	}
	var b strings.Builder
	for i := 1; i < len(s); i++ {
		switch c := s[i]; {
		case c == '"':
			return b.String(), s[i+1:], true
		case c < ' ' || c > '~':
			return "", s, false
		case c != '\\':
			b.WriteByte(c)
		default:
			i++
			if i == len(s) || (s[i] != '"' && s[i] != '\\') {
				return "", s, false
			}
			b.WriteByte(s[i])
		}
	}
	return "", s, false
}
