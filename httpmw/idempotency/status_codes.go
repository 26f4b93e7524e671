package idempotency

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"slices"

	"github.com/latchkey-go/latchkey/httpmw"
	"github.com/latchkey-go/latchkey/internal/admission"
)

// What people read about a request that was rejected.
const (
	inFlightDetail = "Another request with this idempotency key is in progress."
	headerDetail   = "The request needs one header Idempotency-Key with 1 to 255 printable ASCII characters, and a user." + admission.CorrectIt
)

// Responses to requests that have failed.
var (
	ended        = admission.Response{Status: http.StatusServiceUnavailable, TryAgain: true, Detail: admission.EndedDetail}
	otherPayload = admission.Response{Status: http.StatusUnprocessableEntity, Detail: "The idempotency key was used for another request. Send this request with a new key."}
	unavailable  = admission.Response{Status: http.StatusServiceUnavailable, TryAgain: true, Detail: "The server cannot tell whether the request was carried out. Use the same idempotency key when you send it again."}
	fault        = admission.Response{Status: http.StatusInternalServerError, Detail: admission.FaultDetail}
)

// responses are those to errors of this package. The first that fits counts. Those
// of a fault are mistakes that a retry does not correct.
var responses = []struct {
	to   admission.Response
	errs []error
}{
	{admission.Response{Status: http.StatusServiceUnavailable, TryAgain: true, Detail: "The request was interrupted. Use the same idempotency key when you send it again."},
		[]error{httpmw.ErrInterrupted}}, // whatever the cause
	{admission.Response{Status: http.StatusBadRequest, Detail: "The body of the request could not be read. Send the request again."}, []error{errBadBody}},
	{admission.Response{Status: http.StatusRequestEntityTooLarge, Detail: "The body of the request is too large. Send a smaller one."}, []error{ErrBodyTooLarge}},
	{otherPayload, []error{ErrOtherPayload}},
	{fault, []error{ErrResponseTooLarge, ErrTxUnusable, ErrNoRoute, ErrBodyConsumed, errShortIDs, errSwitched, errSetup}},
}

// responseTo returns the response to a request that failed with err. It reports
// false if the response is that of package httpmw, or of a KeyFunc of httpmw.
func (m *Middleware) responseTo(err error) (response admission.Response, ours bool) {
	for _, r := range responses {
		if slices.ContainsFunc(r.errs, func(e error) bool { return errors.Is(err, e) }) {
			return r.to, true
		}
	}
	switch admission.ReasonOf(err) {
	case admission.Busy, admission.Chosen:
		return response, false
	case admission.BadKey:
		return admission.Response{Status: http.StatusBadRequest, Detail: m.keyDetail}, true
	case admission.Ended:
		return ended, true
	case admission.Fault:
		return fault, true
	}
	return unavailable, true
}

// reject writes the response to a request that failed with err. It logs a key
// with two payloads, and failures of which the client learns only that they are
// 500 or 503.
func (m *Middleware) reject(w http.ResponseWriter, r *http.Request, err error) {
	response, ours := m.responseTo(err)
	if !ours {
		m.rejecter.Reject(w, r, err)
		return
	}
	response.Err = err
	switch response.Detail {
	case otherPayload.Detail:
		m.log.WarnContext(context.WithoutCancel(r.Context()), "idempotency: rejected a request", "route", r.Pattern, "error", err)
	case fault.Detail, unavailable.Detail:
		m.log.ErrorContext(context.WithoutCancel(r.Context()), "idempotency: failed a request", "route", r.Pattern, "error", err)
	}
	m.rejecter.Reject(w, r, &response)
}

// Mistakes of the service's wiring, for the log.
const (
	noPrincipalText = "idempotency: a request has no principal: is the middleware inside of the authentication and of the router?"
	twiceText       = "idempotency: a request needs two places of one limit: is the middleware on its road twice?"
)

// report logs text about r's route. A pattern is not an id; the URL may hold
// one.
func (m *Middleware) report(r *http.Request, level slog.Level, text string, attrs ...slog.Attr) {
	attrs = append(attrs, slog.String("namespace", string(m.limiter.Namespace())))
	m.reports.Log(r.Context(), m.log, level, text, slog.String("route", r.Pattern), attrs...)
}
