package httpmw

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"net/http"
	"strconv"

	"github.com/latchkey-go/latchkey/internal/admission"
)

// blankType is the type of a problem that its status explains (RFC 9457).
const blankType = "about:blank"

// details say to a person what is wrong and what to do. Those of the reasons
// for which mayTryAgain holds are followed by the time to wait.
var details = [reasons]string{
	badKey:      admission.NoKeyDetail,
	ended:       admission.EndedDetail,
	unavailable: "The lock service is unavailable.",
	interrupted: "The request was interrupted, and may have had effects.",
	fault:       admission.FaultDetail,
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
func (m *Middleware) makeProblems() {
	for why := range reason(reasons) {
		m.problems[why] = newProblem(m.status(why), blankType, "", details[why], mayTryAgain(why))
	}
	m.problems[busy] = m.busyProblem(someFull)
	for _, level := range m.levels {
		m.fullLevels = append(m.fullLevels, m.busyProblem(m.gate.FullText(level.Limiter, level.Limiter.Limit())))
	}
}

// someFull is the detail of busy if the error names no level of the stack.
const someFull = "As many requests as the limits admit are in progress."

// busyProblem makes a problem of busy. Its detail is that of WithBusyText, if
// there is one.
func (m *Middleware) busyProblem(detail string) problem {
	kind, title := m.problemType, ""
	if kind != blankType {
		title = "Another request is in progress"
	}
	return newProblem(m.status(busy), kind, title, cmp.Or(m.busyText, detail), true)
}

// problemFor returns the problem of why, the reason of err.
func (m *Middleware) problemFor(why reason, err error) problem {
	if why == badKey || why == chosen {
		if own := (*admission.Response)(nil); errors.As(err, &own) {
			return newProblem(own.Status, blankType, "", own.Detail, own.TryAgain)
		}
	}
	if why == busy {
		return m.problemOfFull(err)
	}
	return m.problems[why]
}

// problemOfFull returns the problem of err, of the reason busy. With
// [ratelimit.WithLimit] each id may have another.
func (m *Middleware) problemOfFull(err error) problem {
	i, size, _ := m.gate.Full(err)
	switch {
	case i < 0:
		return m.problems[busy]
	case m.busyText == "" && size != m.levels[i].Limiter.Limit():
		return m.busyProblem(m.gate.FullText(m.levels[i].Limiter, size))
	}
	return m.fullLevels[i]
}
