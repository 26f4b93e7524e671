package idempotency

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"io"
	"log/slog"
	"maps"
	"net/http"
	"net/url"
	"strings"

	"github.com/latchkey-go/latchkey/httpmw"
	"github.com/latchkey-go/latchkey/internal/admission"
)

// A payload is what a request asks for, and its key.
type payload struct {
	// key is the hash of namespace, principal, route and key. Names and keys
	// themselves never reach the database.
	key [sha256.Size]byte

	// fingerprint is the hash of what must be the same when the key comes
	// again.
	fingerprint [sha256.Size]byte

	body []byte
}

// lockID returns the id of the key for the limiter.
func (p payload) lockID() string { return hex.EncodeToString(p.key[:]) }

// restore returns r, a copy of the request, with the body that was read from
// it. It asks for no compression: the stored response is for clients that
// accept another one, or none.
func (p payload) restore(r *http.Request) *http.Request {
	r.Body, r.ContentLength = io.NopCloser(bytes.NewReader(p.body)), int64(len(p.body))
	if len(p.body) == 0 {
		r.Body = http.NoBody
	}
	r.Header = maps.Clone(r.Header)
	r.Header.Set("Accept-Encoding", "identity")
	return r
}

// read reads what r asks for. The error is httpmw.ErrBypass if the handler
// should run as without the Middleware. The body has not been read then.
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
		return payload{}, admission.KeyErrorOf(r.Context(), err)
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
		fingerprint: digest(m.compared(r, body)...),
		body:        body,
	}, nil
}

// compared lists what must be the same when a key comes again. A header field
// that r does not have is left out, with its name. So a field that joins the
// list later does not change the fingerprint of a request without it.
func (m *Middleware) compared(r *http.Request, body []byte) []string {
	parts := []string{r.Method, hostname(r), target(r), r.Header.Get("Content-Type"), string(body)}
	for _, name := range m.fields {
		if values := r.Header.Values(name); len(values) > 0 {
			parts = append(parts, name, strings.Join(values, ", ")) // as a proxy may join them
		}
	}
	return parts
}

// hostname returns the host that r is for, without the port, in which instances
// may differ.
func hostname(r *http.Request) string {
	return strings.ToLower((&url.URL{Host: r.Host}).Hostname())
}

// target returns path and query as the client sent them. A mux or
// http.StripPrefix around may have changed r.URL.
func target(r *http.Request) string {
	sent, err := url.ParseRequestURI(r.RequestURI)
	if err != nil { // r does not come from a server
		sent = r.URL
	}
	return sent.EscapedPath() + "?" + sent.RawQuery
}

// digest returns a hash of parts. Different parts have different hashes.
func digest(parts ...string) [sha256.Size]byte {
	var joined []byte
	for _, part := range parts {
		joined = admission.AppendPart(joined, part)
	}
	return sha256.Sum256(joined)
}

// routeOf returns the route of r, or httpmw.ErrBypass if WithRoute says so.
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

// muxPattern is the default of [WithRoute].
func muxPattern(r *http.Request) (string, error) { return r.Pattern, nil }
