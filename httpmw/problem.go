package httpmw

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"net/http"
	"strconv"

	"github.com/latchkey-go/latchkey/internal/rejection"
)

// blankType is the type of a problem that its status explains (RFC 9457).
const blankType = "about:blank"

// details say to a person what is wrong and what to do. Those of the reasons
// for which mayTryAgain holds are followed by the time to wait.
var details = [reasons]string{
	badKey:      rejection.NoKey,
	ended:       rejection.Ended,
	unavailable: "The lock service is unavailable.",
	interrupted: "The request was interrupted, and may have had effects.",
	fault:       rejection.Fault,
}

// busyDetail is the default detail of busy. It names the limit and its size.
func (m *Middleware) busyDetail() string {
	limit := "The limit " + strconv.Quote(string(m.limiter.Namespace())) + " admits "
	if m.limiter.Limit() == 1 {
		return limit + "one request at a time, and another request is in progress."
	}
	n := strconv.Itoa(m.limiter.Limit())
	return limit + n + " requests at a time, and " + n + " are in progress."
}

// A problem is the status and body of a response to a rejected request (RFC
// 9457). Nothing in it comes from the request.
type problem struct {
	status   int
	tryAgain bool
	before   []byte // the body up to the time to wait if tryAgain; otherwise all of it
}

// problemJSON is the body of a problem. Detail is last, so that the time to
// wait can be appended to it.
type problemJSON struct {
	Type   string `json:"type"`
	Title  string `json:"title"`
	Status int    `json:"status"`
	Detail string `json:"detail"`
}

// afterDetail ends a body.
const afterDetail = "\"}\n"

// newProblem makes the problem of a status. An empty title is the status text.
func newProblem(status int, kind, title, detail string, tryAgain bool) problem {
	if tryAgain {
		detail += " Try again in "
	}
	body, err := json.Marshal(problemJSON{kind, cmp.Or(title, http.StatusText(status)), status, detail})
	if err != nil {
		panic("httpmw: " + err.Error()) // cannot happen: only strings and a number
	}
	if tryAgain {
		return problem{status, true, bytes.TrimSuffix(body, []byte(`"}`))}
	}
	return problem{status, false, append(body, '\n')}
}

// body returns the body of p, which tells the client to wait for seconds if p
// is worth another try.
func (p problem) body(seconds int64) []byte {
	if !p.tryAgain {
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

// makeProblems makes the problems that are the same for every request.
func (m *Middleware) makeProblems() [reasons]problem {
	var problems [reasons]problem
	for why := range reason(reasons) {
		problems[why] = newProblem(m.status(why), blankType, "", details[why], why.mayTryAgain())
	}
	kind, title := m.problemType, ""
	if kind != blankType {
		title = "Another request is in progress"
	}
	problems[busy] = newProblem(m.status(busy), kind, title, cmp.Or(m.busyText, m.busyDetail()), true)
	return problems
}

// problemFor returns the problem of why, the reason of err.
func (m *Middleware) problemFor(why reason, err error) problem {
	if why == badKey || why == chosen {
		if own := (*rejection.Error)(nil); errors.As(err, &own) {
			return newProblem(own.Status, blankType, "", own.Detail, own.TryAgain)
		}
	}
	return m.problems[why]
}
