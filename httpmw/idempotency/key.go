package idempotency

import (
	"errors"
	"fmt"
	"net/http"
	"strings"

	"github.com/latchkey-go/latchkey/httpmw"
	"github.com/latchkey-go/latchkey/internal/admission"
	"github.com/latchkey-go/latchkey/ratelimit"
)

const (
	keyHeader = "Idempotency-Key"
	maxKeyLen = 255
)

var oneKeyHeader = httpmw.Header(keyHeader) // fails if the header is missing or given twice

var errBadKeyHeader = fmt.Errorf("idempotency: header %s: %w: it is not one string of 1 to %d printable ASCII characters",
	keyHeader, ratelimit.ErrBadID, maxKeyLen)

// keyOf returns the key of r. The error is httpmw.ErrBypass if r has none and
// needs none.
//
//   - A safe method has no effect that could be repeated: a key means nothing.
//   - PUT and DELETE are idempotent by definition: a key may be given.
//   - Every other method needs a key, unless keys are optional.
func (m *Middleware) keyOf(r *http.Request) (string, error) {
	optional := m.keyOptional
	switch r.Method {
	case http.MethodGet, http.MethodHead, http.MethodOptions, http.MethodTrace:
		return "", httpmw.ErrBypass
	case http.MethodPut, http.MethodDelete:
		optional = true
	}
	key, err := m.key(r)
	if err == nil && key == "" {
		err = httpmw.ErrNoKey
	}
	switch {
	case err == nil:
		return key, nil
	case optional && errors.Is(err, httpmw.ErrNoKey):
		return "", httpmw.ErrBypass
	}
	return "", admission.KeyErrorOf(r.Context(), err)
}

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
	key, ok := parseKey(strings.Trim(value, " "))
	if !ok || key == "" || len(key) > maxKeyLen {
		return "", errBadKeyHeader
	}
	return key, nil
}

// parseKey reads a bare word, or a string of structured fields (RFC 9651,
// 4.2.5), whose parameters mean nothing. A comma outside of the string is an
// error, since a proxy may have joined two values.
func parseKey(value string) (key string, ok bool) {
	text, quoted := strings.CutPrefix(value, `"`)
	if !quoted {
		return value, !strings.ContainsFunc(value, func(c rune) bool { return !isPrintable(c) || strings.ContainsRune(` ",;\`, c) })
	}
	var b strings.Builder
	for i := 0; i < len(text); i++ {
		switch c := text[i]; {
		case c == '"':
			return b.String(), areParameters(text[i+1:])
		case !isPrintable(rune(c)):
			return "", false
		case c == '\\':
			i++
			if i == len(text) || text[i] != '"' && text[i] != '\\' {
				return "", false
			}
		}
		b.WriteByte(text[i])
	}
	return "", false
}

// areParameters reports whether s may be the parameters of a string, such as
// ;a;b=1. It does not read their values.
func areParameters(s string) bool {
	return s == "" || strings.HasPrefix(s, ";") && !strings.ContainsFunc(s, func(c rune) bool { return !isPrintable(c) || c == ',' })
}

func isPrintable(c rune) bool { return ' ' <= c && c <= '~' }
