package httpmw

import (
	"encoding/json"
	"net/http"
	"strconv"
	"strings"
)

// blankType is the type of a problem that its status says all about (RFC 9457).
const blankType = "about:blank"

// An answer is what a refused client gets, but for what changes each time.
type answer struct {
	status int
	body   []byte
}

// problem is the body of an answer (RFC 9457). Nothing in it comes from the
// request.
type problem struct {
	Type   string `json:"type"`
	Title  string `json:"title"`
	Status int    `json:"status"`
	Detail string `json:"detail"`
}

var details = map[verdict]string{
	busy:    "As many requests as may be served at a time are being served already.",
	badKey:  "The request does not say properly whom or what it is for.",
	gone:    "The request ended before it could be admitted.",
	unknown: "It cannot be told now whether the request may be served.",

	interrupted: "The request was interrupted before there was a response to it.",

	badBody:      "The request's body could not be read.",
	tooLarge:     "The request's body is too large.",
	otherPayload: "The idempotency key was used for another request before: a new request needs a new key.",
	broken:       "The server could not serve the request as it should.",
}

// idempotencyDetails are in place of details for an Idempotency.
var idempotencyDetails = map[verdict]string{
	busy:    "A request with this idempotency key is being served.",
	badKey:  "The request needs a header Idempotency-Key, once: one string of 1 to 255 printable ASCII characters; and must say whom it is for.",
	unknown: "It cannot be told now whether the request was served: send it again, with the same idempotency key.",

	interrupted: "The request was interrupted. Send it again, with the same idempotency key.",
}

func (m *Middleware) makeAnswers() map[verdict]answer {
	answers := make(map[verdict]answer, len(details))
	for v, detail := range details {
		if m.details[v] != "" {
			detail = m.details[v]
		}
		status := m.status(v)
		p := problem{blankType, http.StatusText(status), status, detail}
		if v == busy && m.problemType != blankType {
			p.Type, p.Title = m.problemType, "Another request is in progress"
		}
		body, err := json.Marshal(p)
		if err != nil {
			panic("httpmw: " + err.Error()) // strings and a number: cannot be
		}
		answers[v] = answer{status, append(body, '\n')}
	}
	return answers
}

// Reject answers a request that [Middleware.Acquire] did not admit, for the
// reason err. It always writes: a handler that returns without having written
// sends 200 OK.
//
//	429 with Retry-After  busy; 409 with WithConflict
//	400                   no key in the request, or a bad one
//	500                   a KeyFunc failed with an error of its own
//	503 with Retry-After  anything else: the database is away, too many locks
//	                      are held, the request's context ended, …
//
// The body is application/problem+json (RFC 9457), unless WithRejectHandler has
// written another. No part of the answer holds the key.
func (m *Middleware) Reject(w http.ResponseWriter, r *http.Request, err error) {
	v := verdictOn(err)
	h := w.Header()
	h.Set("Cache-Control", "no-store")
	if seconds := retryAfter(v, err); seconds > 0 {
		h.Set("Retry-After", strconv.FormatInt(seconds, 10))
		if v == busy && m.rateLimitHeaders {
			m.setRateLimit(h, seconds)
		}
	}
	if m.rejectHandler != nil && m.rejectedByHandler(w, r, err) {
		return
	}
	a := m.answers[v]
	h.Del("Content-Length")
	h.Set("Content-Type", "application/problem+json")
	h.Set("X-Content-Type-Options", "nosniff")
	w.WriteHeader(a.status)
	_, _ = w.Write(a.body) // a client that has gone does not miss it
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
