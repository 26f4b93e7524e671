package httpmw

import (
	"bytes"
	"encoding/json"
	"errors"
	"net/http"
	"strconv"
)

// blankType is the type of a problem that its status says all about (RFC 9457).
const blankType = "about:blank"

// details say to a person what is wrong and what to do. When to try again is
// added to those that it is worth to try again after.
var details = map[verdict]string{
	badKey:  "The request does not identify its user or resource. Correct the request and send it again.",
	gone:    "The request ended while it waited for its turn.",
	unknown: "The lock service is unavailable.",

	interrupted: "The request was interrupted, and may have had effects.",

	badBody:      "The body of the request could not be read. Send the request again.",
	tooLarge:     "The body of the request is too large. Send a smaller one.",
	otherPayload: "The idempotency key was used for another request. Send this request with a new key.",
	broken:       "The server failed to process the request. Its log says why. If this happens again, contact the people who run it.",
}

// idempotencyDetails are in place of details for an Idempotency.
var idempotencyDetails = map[verdict]string{
	busy:    "Another request with this idempotency key is in progress.",
	badKey:  "The request needs one header Idempotency-Key with 1 to 255 printable ASCII characters, and a user. Correct the request and send it again.",
	unknown: "The server cannot tell whether the request was carried out. Use the same idempotency key when you send it again.",

	interrupted: "The request was interrupted. Use the same idempotency key when you send it again.",
}

// correctIt is what to do about a clientError.
const correctIt = " Correct the request and send it again."

// busyDetail is details[busy], which differs between limits.
func (m *Middleware) busyDetail() string {
	limit := "The limit " + strconv.Quote(string(m.limiter.Namespace())) + " admits "
	if m.limiter.Limit() == 1 {
		return limit + "one request at a time, and another request is in progress."
	}
	n := strconv.Itoa(m.limiter.Limit())
	return limit + n + " requests at a time, and " + n + " are in progress."
}

// detail is what a person reads of v, without when to try again.
func (m *Middleware) detail(v verdict) string {
	switch {
	case v == busy && m.busyText != "":
		return m.busyText
	case m.details[v] != "":
		return m.details[v]
	case v == busy:
		return m.busyDetail()
	}
	return details[v]
}

// A problem is the status and body of a response to a rejected request (RFC 9457).
// Nothing in it comes from the request.
type problem struct {
	status int
	before []byte // the body up to the time to wait, if there is one; else all of it
}

// problemJSON is the body of a problem. Detail is last, so that a time to wait can
// be added to it.
type problemJSON struct {
	Type   string `json:"type"`
	Title  string `json:"title"`
	Status int    `json:"status"`
	Detail string `json:"detail"`
}

// afterDetail ends a body.
const afterDetail = "\"}\n"

// newProblem makes the problem of v with a detail.
func (m *Middleware) newProblem(v verdict, detail string) problem {
	if v.passes() {
		detail += " Try again in "
	}
	status := m.status(v)
	p := problemJSON{blankType, http.StatusText(status), status, detail}
	if v == busy && m.problemType != blankType {
		p.Type, p.Title = m.problemType, "Another request is in progress"
	}
	body, err := json.Marshal(p)
	if err != nil {
		panic("httpmw: " + err.Error()) // strings and a number: cannot be
	}
	if v.passes() {
		return problem{status, bytes.TrimSuffix(body, []byte(`"}`))}
	}
	return problem{status, append(body, '\n')}
}

// body is the body that says to wait for seconds; 0 if p does not say it.
func (p problem) body(seconds int64) []byte {
	if seconds == 0 {
		return p.before
	}
	body := make([]byte, 0, len(p.before)+len("9223372036 seconds.")+len(afterDetail))
	body = strconv.AppendInt(append(body, p.before...), seconds, 10)
	if seconds == 1 {
		body = append(body, " second."...)
	} else {
		body = append(body, " seconds."...)
	}
	return append(body, afterDetail...)
}

// makeProblems makes those that are the same for every request.
func (m *Middleware) makeProblems() map[verdict]problem {
	problems := make(map[verdict]problem, verdicts)
	for v := range verdict(verdicts) {
		problems[v] = m.newProblem(v, m.detail(v))
	}
	return problems
}

// problemFor is the problem of v, which is the verdict on err.
func (m *Middleware) problemFor(v verdict, err error) problem {
	if v == badKey {
		if mistake := (clientError{}); errors.As(err, &mistake) {
			return m.newProblem(v, mistake.detail+correctIt)
		}
	}
	return m.problems[v]
}
