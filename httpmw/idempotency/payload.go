package idempotency

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"net/url"
	"strings"

	"github.com/latchkey-go/latchkey/httpmw"
	"github.com/latchkey-go/latchkey/internal/joinkey"
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

// read reads what r asks for. The error is httpmw.ErrBypass if the handler should run as if
// there were no Idempotency: nothing has been read of r then.
func (m *Middleware) read(w http.ResponseWriter, r *http.Request) (payload, error) {
	key, err := m.keyOf(r)
	if err != nil {
		return payload{}, err
	}
	principal, err := m.principal(r)
	if err == nil && principal == "" {
		err = httpmw.ErrNoKey
	}
	if errors.Is(err, httpmw.ErrNoKey) { // whereas a missing Idempotency-Key is the client's mistake
		m.report(r, slog.LevelWarn, noPrincipalText, slog.Any("error", err))
	}
	if err != nil {
		return payload{}, newKeyError(r, err)
	}
	route, err := m.routeOf(r)
	if err != nil {
		return payload{}, err
	}
	body, err := m.readBody(w, r)
	if err != nil {
		return payload{}, err
	}
	return payload{
		key:         digest(string(m.limiter.Namespace()), principal, route, key),
		fingerprint: digest(m.asked(r, body)...),
		body:        body,
	}, nil
}

// asked lists what must be the same when a key comes again. A header field that r
// has not is left out, with its name. So a field that joins the list later changes
// no fingerprint of a request without it.
func (m *Middleware) asked(r *http.Request, body []byte) []string {
	parts := []string{r.Method, hostname(r), target(r), r.Header.Get("Content-Type"), string(body)}
	for _, name := range m.fields {
		if values := r.Header.Values(name); len(values) > 0 {
			parts = append(parts, name, strings.Join(values, ", ")) // as a proxy may join them
		}
	}
	return parts
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

func (m *Middleware) routeOf(r *http.Request) (string, error) {
	route, err := m.route(r)
	switch {
	case errors.Is(err, httpmw.ErrBypass):
		return "", err
	case err != nil, route == "":
		return "", ErrNoRoute
	}
	return route, nil
}

// muxPattern is the route unless there is WithRoute.
func muxPattern(r *http.Request) (string, error) { return r.Pattern, nil }
