package httpmw

import (
	"net/http"
	"strconv"
	"strings"
)

// Reject writes the response to a request that [Middleware.AcquireAll] did not
// admit, for the reason err. It always writes: a handler that returns without
// having written sends 200 OK.
//
//	429 with Retry-After  busy; 409 with WithConflict
//	400                   no key in the request, or a bad one
//	500                   a KeyFunc failed with an error of its own, or the
//	                      policy of a limit ([ratelimit.ErrPolicy])
//	503 with Retry-After  anything else: the database is away, too many locks
//	                      are held, the request's context ended, its handler
//	                      was interrupted ([ErrInterrupted]), …
//
// The body is application/problem+json (RFC 9457), unless WithRejectHandler has
// written another. Its detail is for people. It says which limit is full, what
// to do, and when to try again. Behind [NewStack] that is the limit of the level
// that is full. No part of the response holds the key.
func (m *Middleware) Reject(w http.ResponseWriter, r *http.Request, err error) {
	why := reasonOf(err)
	p := m.problemFor(why, err)
	h := w.Header()
	h.Set("Cache-Control", "no-store")
	var seconds int64
	if p.tryAgain {
		seconds = m.retryAfter(why, err)
		h.Set("Retry-After", strconv.FormatInt(seconds, 10))
		if why == busy && m.rateLimitHeaders {
			m.setRateLimit(h, err, seconds)
		}
	}
	if m.rejectHandler != nil && m.rejectedByHandler(w, r, err) {
		return
	}
	h.Del("Content-Length")
	h.Set("Content-Type", "application/problem+json")
	h.Set("X-Content-Type-Options", "nosniff")
	w.WriteHeader(p.Status)
	_, _ = w.Write(p.body(seconds)) // a client that has left does not need it
}

// rejectedByHandler reports whether the handler of WithRejectHandler has begun
// a response.
func (m *Middleware) rejectedByHandler(w http.ResponseWriter, r *http.Request, err error) bool {
	watched := m.newHeldWriter(w, r)
	m.rejectHandler(watched.exposed(), r, err)
	if watched.state == unbegun {
		return false
	}
	watched.end()
	return true
}

// setRateLimit sets the fields of draft-ietf-httpapi-ratelimit-headers-10 for
// the level that is full.
func (m *Middleware) setRateLimit(h http.Header, err error, seconds int64) {
	i, size, _ := m.gate.Full(err)
	if i < 0 {
		return
	}
	policy := policyName(string(m.levels[i].Limiter.Namespace()))
	h.Set("RateLimit-Policy", policy+";q="+strconv.Itoa(size)+`;qu="concurrent-requests"`)
	h.Set("RateLimit", policy+";r=0;t="+strconv.FormatInt(seconds, 10))
}

// policyName returns ns as a string of structured fields (RFC 9651), which hold
// only printable ASCII.
func policyName(ns string) string {
	if strings.ContainsFunc(ns, func(c rune) bool { return c < ' ' || c > '~' }) {
		ns = "default"
	}
	return `"` + strings.NewReplacer(`\`, `\\`, `"`, `\"`).Replace(ns) + `"`
}
