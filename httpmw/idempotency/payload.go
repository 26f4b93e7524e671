package httpmw

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"io"
	"net/http"
	"net/url"
	"strings"

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

// read reads what r asks for. The error is ErrBypass if the handler should run as if
// there were no Idempotency: nothing has been read of r then.
func (i *Idempotency) read(w http.ResponseWriter, r *http.Request) (payload, error) {
	key, err := i.keyOf(r)
	if err != nil {
		return payload{}, err
	}
	principal, err := i.principal(r)
	if err == nil && principal == "" {
		err = ErrNoKey
	}
	if errors.Is(err, ErrNoKey) { // whereas no Idempotency-Key is the client's mistake
		i.refusals.reportNoKey(r, err)
	}
	if err != nil {
		return payload{}, newKeyError(r, err)
	}
	route, err := i.routeOf(r)
	if err != nil {
		return payload{}, err
	}
	body, err := i.readBody(w, r)
	if err != nil {
		return payload{}, err
	}
	return payload{
		key:         digest(string(i.limiter.Namespace()), principal, route, key),
		fingerprint: digest(i.asked(r, body)...),
		body:        body,
	}, nil
}

// asked lists what must be the same when a key comes again. A header field that r
// has not is left out, with its name. So a field that joins the list later changes
// no fingerprint of a request without it.
func (i *Idempotency) asked(r *http.Request, body []byte) []string {
	parts := []string{r.Method, hostname(r), target(r), r.Header.Get("Content-Type"), string(body)}
	for _, name := range i.fields {
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

func (i *Idempotency) routeOf(r *http.Request) (string, error) {
	route, err := i.route(r)
	switch {
	case errors.Is(err, ErrBypass):
		return "", err
	case err != nil, route == "":
		return "", ErrNoRoute
	}
	return route, nil
}

// muxPattern is the route unless there is WithRoute.
func muxPattern(r *http.Request) (string, error) { return r.Pattern, nil }
