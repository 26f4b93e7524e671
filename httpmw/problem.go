package httpmw

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strconv"

	"github.com/latchkey-go/latchkey/internal/places"
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
	var own *rejection.Error
	switch {
	case why == busy:
		p = problem{Type: m.problemType, Status: m.status(busy), Detail: m.busyDetail(err), tryAgain: true}
		if p.Type != blankType {
			p.Title = "Another request is in progress"
		}
	case (why == badKey || why == chosen) && errors.As(err, &own):
		p = problem{Type: blankType, Status: own.Status, Detail: own.Detail, tryAgain: own.TryAgain}
	default:
		p = problem{Type: blankType, Status: m.status(why), Detail: details[why], tryAgain: why.mayTryAgain()}
	}
	p.Title = cmp.Or(p.Title, http.StatusText(p.Status))
	return p
}

// busyDetail is the detail of err, of the reason busy. It names the limit and
// its size, unless WithBusyText has replaced it.
func (m *Middleware) busyDetail(err error) string {
	i, size := m.full(err)
	switch {
	case m.busyText != "":
		return m.busyText
	case i < 0:
		return "As many requests as the limits admit are in progress."
	}
	limit := "The limit " + strconv.Quote(string(m.levels[i].Limiter.Namespace())) + " admits "
	if size == 1 {
		return limit + "one request at a time, and another request is in progress."
	}
	return limit + fmt.Sprintf("%d requests at a time, and %[1]d are in progress.", size)
}

// full returns the index of the level that err, of the reason busy, names, and
// how many requests the level admits. With [ratelimit.WithLimit] each id may
// have another number. A single level is the one. If err names none of several,
// i is -1.
func (m *Middleware) full(err error) (i, size int) {
	full := places.Full(err)
	if len(m.levels) > 1 {
		i = slices.IndexFunc(m.levels, func(l Level) bool { return string(l.Limiter.Namespace()) == full.Namespace })
	}
	if i >= 0 {
		size = cmp.Or(full.Limit, m.levels[i].Limiter.Limit())
	}
	return i, size
}
