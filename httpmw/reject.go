package httpmw

import (
	"net/http"
	"strconv"
	"strings"
)

// Reject writes the response to a request that [Middleware.Acquire] did not
// admit, for the reason err. It always writes: a handler that returns without
// having written sends 200 OK.
//
//	429 with Retry-After  busy; 409 with WithConflict
//	400                   no key in the request, or a bad one
//	500                   a KeyFunc failed with an error of its own
//	503 with Retry-After  anything else: the database is away, too many locks
//	                      are held, the request's context ended, its handler
//	                      was interrupted ([ErrInterrupted]), …
//
// The body is application/problem+json (RFC 9457), unless WithRejectHandler has
// written another. Its detail is for people. It says which limit is full, what to
// do, and when to try again. No part of the response holds the key.
func (m *Middleware) Reject(w http.ResponseWriter, r *http.Request, err error) {
	v := verdictOn(err)
	h := w.Header()
	h.Set("Cache-Control", "no-store")
	seconds := retryAfter(v, err)
	if seconds > 0 {
		h.Set("Retry-After", strconv.FormatInt(seconds, 10))
		if v == busy && m.rateLimitHeaders {
			m.setRateLimit(h, seconds)
		}
	}
	if m.rejectHandler != nil && m.rejectedByHandler(w, r, err) {
		return
	}
	p := m.problemFor(v, err)
	h.Del("Content-Length")
	h.Set("Content-Type", "application/problem+json")
	h.Set("X-Content-Type-Options", "nosniff")
	w.WriteHeader(p.status)
	_, _ = w.Write(p.body(seconds)) // a client that has gone does not miss it
}

// rejectedByHandler reports whether the user's handler has answered.
func (m *Middleware) rejectedByHandler(w http.ResponseWriter, r *http.Request, err error) bool {
	noticed := &noticingWriter{ResponseWriter: w}
	m.rejectHandler(noticed, r, err)
	return noticed.answered
}

// setRateLimit sets the fields of draft-ietf-httpapi-ratelimit-headers-10.
func (m *Middleware) setRateLimit(h http.Header, seconds int64) {
	policy := policyName(string(m.limiter.Namespace()))
	h.Set("RateLimit-Policy", policy+";q="+strconv.Itoa(m.limiter.Limit())+`;qu="concurrent-requests"`)
	h.Set("RateLimit", policy+";r=0;t="+strconv.FormatInt(seconds, 10))
}

// policyName is ns as a string of structured fields (RFC 9651), which hold
// printable ASCII only.
func policyName(ns string) string {
	if strings.ContainsFunc(ns, func(c rune) bool { return c < ' ' || c > '~' }) {
		ns = "default"
	}
	return `"` + strings.NewReplacer(`\`, `\\`, `"`, `\"`).Replace(ns) + `"`
}
