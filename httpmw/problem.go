package httpmw

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"

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
	Type   string `json:"type"`
	Title  string `json:"title"`
	Status int    `json:"status"`
	Detail string `json:"detail"`

	tryAgain bool
}

// body returns the body of p, which tells the client to wait for seconds if p
// is worth another try.
func (p problem) body(seconds int64) []byte {
	if p.tryAgain {
		unit := "seconds"
		if seconds == 1 {
			unit = "second"
		}
		p.Detail += fmt.Sprintf(" Try again in %d %s.", seconds, unit)
	}
	body, err := json.Marshal(p)
	if err != nil {
		panic("httpmw: " + err.Error()) // cannot happen: only strings and a number
	}
	return append(body, '\n')
}

// problemFor returns the problem of why, the reason of err.
func (m *Middleware) problemFor(why reason, err error) problem {
	var p problem
	var own *admission.Response
	switch {
	case why == busy:
		p = problem{Type: m.problemType, Status: m.status(busy), Detail: m.busyDetail(err), tryAgain: true}
		if p.Type != blankType {
			p.Title = "Another request is in progress"
		}
	case (why == badKey || why == chosen) && errors.As(err, &own):
		p = problem{Type: blankType, Status: own.Status, Detail: own.Detail, tryAgain: own.TryAgain}
	default:
		p = problem{Type: blankType, Status: m.status(why), Detail: details[why], tryAgain: mayTryAgain(why)}
	}
	p.Title = cmp.Or(p.Title, http.StatusText(p.Status))
	return p
}

// busyDetail is the detail of err, of the reason busy. It names the limit and
// its size, unless WithBusyText has replaced it.
func (m *Middleware) busyDetail(err error) string {
	level, size, _ := m.gate.Full(err)
	switch {
	case m.busyText != "":
		return m.busyText
	case level < 0:
		return "As many requests as the limits admit are in progress."
	}
	return m.gate.FullText(m.levels[level].Limiter, size)
}
