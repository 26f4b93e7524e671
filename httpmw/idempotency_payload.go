package httpmw

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"

	"github.com/latchkey-go/latchkey/internal/joinkey"
	"github.com/latchkey-go/latchkey/ratelimit"
)

// A payload is what a request asks for, and under which key.
type payload struct {
	// key is the hash of whose key it is, for what, and of the key itself: names
	// and keys never reach the database.
	key [sha256.Size]byte

	// fingerprint is what must be the same when the key comes again.
	fingerprint [sha256.Size]byte

	body []byte
}

// lockID is what the limiter knows the key by.
func (p payload) lockID() string { return hex.EncodeToString(p.key[:]) }

// restore gives r, a copy of the request, the body that was read from it.
func (p payload) restore(r *http.Request) *http.Request {
	r.Body, r.ContentLength = io.NopCloser(bytes.NewReader(p.body)), int64(len(p.body))
	if len(p.body) == 0 {
		r.Body = http.NoBody
	}
	return r
}

// read reads what r asks for.
func (i *Idempotency) read(w http.ResponseWriter, r *http.Request) (payload, error) {
	names := []string{string(i.limiter.Namespace())}
	for n, name := range []KeyFunc{i.principal, i.routeOf, i.key} {
		part, err := name(r)
		if err == nil && part == "" {
			err = ErrNoKey
		}
		if n == 0 && errors.Is(err, ErrNoKey) { // of the others, that is the client's mistake
			i.refusals.reportNoKey(r, err)
		}
		if err != nil {
			return payload{}, newKeyError(r, err)
		}
		names = append(names, part)
	}
	body, err := i.readBody(w, r)
	if err != nil {
		return payload{}, err
	}
	return payload{
		key:         digest(names...),
		fingerprint: digest(r.Method, hostname(r), target(r), r.Header.Get("Content-Type"), string(body)),
		body:        body,
	}, nil
}

// hostname is the host that r is for, without the port, which instances may differ in.
func hostname(r *http.Request) string {
	return strings.ToLower((&url.URL{Host: r.Host}).Hostname())
}

// target is path and query as the client sent them: a mux or http.StripPrefix around us
// may have changed r.URL.
func target(r *http.Request) string {
	sent, err := url.ParseRequestURI(r.RequestURI)
	if err != nil { // no server's request
		sent = r.URL
	}
	return sent.EscapedPath() + "?" + sent.RawQuery
}

// digest is a hash of parts: different parts have different ones.
func digest(parts ...string) [sha256.Size]byte {
	var joined []byte
	for _, part := range parts {
		joined = joinkey.Append(joined, part)
	}
	return sha256.Sum256(joined)
}

func (i *Idempotency) readBody(w http.ResponseWriter, r *http.Request) ([]byte, error) {
	if r.Form != nil || r.PostForm != nil || r.MultipartForm != nil {
		return nil, ErrBodyConsumed
	}
	if r.Body == nil {
		return nil, nil
	}
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, i.maxBody))
	var tooLarge *http.MaxBytesError
	switch {
	case err == nil && int64(len(body)) < r.ContentLength:
		return nil, ErrBodyConsumed
	case err == nil:
		return body, nil
	case errors.As(err, &tooLarge): // ours, or that of a limit around us
		return nil, ErrBodyTooLarge
	case r.Context().Err() != nil:
		return nil, r.Context().Err()
	}
	return nil, errBadBody
}

func (i *Idempotency) routeOf(r *http.Request) (string, error) {
	route, err := i.route(r)
	if err != nil || route == "" {
		return "", ErrNoRoute
	}
	return route, nil
}

// muxPattern is the route unless there is WithRoute.
func muxPattern(r *http.Request) (string, error) { return r.Pattern, nil }

const (
	keyHeader = "Idempotency-Key"
	maxKeyLen = 255
)

var oneKeyHeader = oneOf("header " + keyHeader)

// headerKey is the value of Idempotency-Key.
func headerKey(r *http.Request) (string, error) {
	value, err := oneKeyHeader(r.Header.Values(keyHeader))
	if err != nil {
		return "", err
	}
	key, ok := parseKey(value)
	if !ok || key == "" || len(key) > maxKeyLen {
		return "", errBadKeyHeader
	}
	return key, nil
}

var errBadKeyHeader = fmt.Errorf("httpmw: header %s: %w: it is not one string of 1 to %d printable ASCII characters",
	keyHeader, ratelimit.ErrBadID, maxKeyLen)

// parseKey reads a string of structured fields (RFC 9651, 3.3.3) without
// parameters, or a bare word. A comma in a bare word is refused: a proxy may have
// made one value of two.
func parseKey(value string) (key string, ok bool) {
	quoted, ok := strings.CutPrefix(value, `"`)
	if !ok {
		return value, !strings.ContainsFunc(value, func(c rune) bool { return c <= ' ' || c > '~' || strings.ContainsRune(`",;\`, c) })
	}
	var b strings.Builder
	for i := 0; i < len(quoted); i++ {
		switch c := quoted[i]; {
		case c == '"':
			return b.String(), i == len(quoted)-1
		case c < ' ' || c > '~':
			return "", false
		case c != '\\':
			b.WriteByte(c)
		default:
			i++
			if i == len(quoted) || (quoted[i] != '"' && quoted[i] != '\\') {
				return "", false
			}
			b.WriteByte(quoted[i])
		}
	}
	return "", false
}
