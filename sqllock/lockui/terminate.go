package lockui

import (
	"context"
	"errors"
	"net/http"
	"net/url"
	"strconv"
	"time"

	"github.com/latchkey-go/latchkey/internal/bound"
	"github.com/latchkey-go/latchkey/sqllock"
	"github.com/latchkey-go/latchkey/sqllock/lockwatch"
)

// terminateTimeout bounds the statement that ends a session.
const terminateTimeout = 5 * time.Second

// A terminateView asks for confirmation, or says what has happened.
type terminateView struct {
	PID    int    `json:"pid"`
	Start  int64  `json:"process_start_us"`
	Held   int    `json:"held"` // locks that end with the session, as last seen
	Asks   bool   `json:"-"`    // the form, before the POST
	Ended  bool   `json:"ended"`
	Result string `json:"result,omitempty"` // a sentence
}

// terminate shows the form that asks for confirmation, and ends the session after
// the POST of that form. A session is named by its PID and its start: the server
// uses a PID again.
func (h *Handler) terminate(w http.ResponseWriter, r *http.Request) {
	if !h.options.terminate(r) {
		http.Error(w, "You may not end sessions.", http.StatusForbidden)
		return
	}
	form := r.URL.Query()
	if r.Method == http.MethodPost {
		r.Body = http.MaxBytesReader(w, r.Body, maxForm)
		if r.ParseForm() != nil {
			http.Error(w, "The form cannot be read.", http.StatusBadRequest)
			return
		}
		form = r.PostForm
	}
	process, ok := processOf(form)
	if !ok {
		http.Error(w, "A session is named by pid and start.", http.StatusBadRequest)
		return
	}
	s := h.poller.viewed(r.Context())
	v := terminateView{PID: process.PID, Start: process.Start.UnixMicro(), Asks: r.Method != http.MethodPost}
	for _, l := range s.view.Holders {
		if !l.SecretCheck && l.Process.PID == process.PID && l.Process.Start.Equal(process.Start) {
			v.Held++
		}
	}
	status := http.StatusOK
	if !v.Asks {
		status = h.endSession(r, process, &v)
	}
	h.respond(w, r, status, "layout", h.page("terminate", "End a session", s, v, true))
}

func processOf(form url.Values) (p lockwatch.Process, ok bool) {
	pid, err := strconv.ParseInt(form.Get("pid"), 10, 32)
	if err != nil || pid <= 0 {
		return p, false
	}
	start, err := strconv.ParseInt(form.Get("start"), 10, 64)
	if err != nil || start <= 0 {
		return p, false
	}
	return lockwatch.Process{PID: int(pid), Start: time.UnixMicro(start)}, true
}

// endSession ends the session of p and describes the result in v. The log says so before
// and after, since the server's reply may be lost. It goes on if the viewer leaves.
func (h *Handler) endSession(r *http.Request, p lockwatch.Process, v *terminateView) (status int) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(r.Context()), bound.Of(terminateTimeout))
	defer cancel()
	log := h.options.log.With("pid", p.PID)
	if h.options.operator != nil {
		log = log.With("operator", h.options.operator(r))
	}
	log.Warn("lockui: an operator asks to end a server session")
	ended, err := lockwatch.Terminate(ctx, h.db, p)
	v.Ended = ended
	switch {
	case ended:
		log.Warn("lockui: an operator has ended a server session, with all its locks")
		v.Result = "The session has been ended, with all its locks."
		return http.StatusOK
	case err == nil:
		log.Info("lockui: no server session was ended: it is gone, or has no lock any more")
		v.Result = "Nothing was ended. That session is gone already, or has no lock any more."
		return http.StatusConflict
	case errors.Is(err, errors.ErrUnsupported):
		log.Info("lockui: no server session was ended: only those of PostgreSQL can be ended here")
		v.Result = "Only sessions of PostgreSQL can be ended here."
		return http.StatusNotImplemented
	case errors.Is(err, sqllock.ErrUnavailable), errors.Is(err, context.DeadlineExceeded):
		v.Result = "The database did not answer. Whether the session was ended is not known."
		status = http.StatusServiceUnavailable
	default:
		v.Result = "The database rejects it. The role of this page needs pg_signal_backend, and a superuser's session only a superuser ends."
		status = http.StatusForbidden
	}
	log.Error("lockui: a server session was not ended", "error", err)
	return status
}
