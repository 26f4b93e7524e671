package lockui

import (
	"bytes"
	"errors"
	"net/http"
	"strconv"
	"time"
)

// authorizeAgain is how long a stream goes on before the page asks again whether its
// viewer may see it. A right that was taken away would otherwise last as long as the
// stream.
const authorizeAgain = time.Minute

// stream sends the changing part of a view as server-sent events: once at the
// beginning, and whenever there is a new state.
//
// A slow client gets fewer events. The stream waits for each write, and then sends
// the newest state. A client that takes nothing for writeTimeout is cut off.
func (h *Handler) stream(w http.ResponseWriter, r *http.Request) {
	query := r.URL.Query()
	v, page := viewOf(query.Get("view")), pageNumber(query)
	if v == nil {
		http.Error(w, "There is no such view.", http.StatusNotFound)
		return
	}
	select {
	case h.streams <- struct{}{}:
		defer func() { <-h.streams }()
	default:
		w.Header().Set("Retry-After", "10")
		http.Error(w, "Too many viewers. This page still works without live updates.", http.StatusServiceUnavailable)
		return
	}
	w.Header().Set("Content-Type", "text/event-stream")
	w.Header().Set("X-Accel-Buffering", "no") // nginx would keep the events back
	if r.ProtoMajor == 1 {
		w.Header().Set("Connection", "close") // the write deadline of send would hold for the next response on it
	}
	if r.Method == http.MethodHead {
		return
	}
	client := http.NewResponseController(w)
	canEnd := h.mayEnd(r)
	for allowed := time.Now(); ; {
		if time.Since(allowed) > authorizeAgain {
			if h.refusal(r) != "" {
				return
			}
			allowed, canEnd = time.Now(), h.mayEnd(r)
		}
		s, changed := h.poller.current()
		if !send(client, w, h.event(v, s, changed, page, canEnd)) {
			return
		}
		if !h.poller.next(r.Context(), changed) {
			return
		}
	}
}

// send writes one event and reports whether the client took it.
func send(client *http.ResponseController, w http.ResponseWriter, event []byte) bool {
	if err := client.SetWriteDeadline(time.Now().Add(writeTimeout)); err != nil && !errors.Is(err, http.ErrNotSupported) {
		return false
	}
	if _, err := w.Write(event); err != nil {
		return false
	}
	return client.Flush() == nil
}

// event returns the changing part of v as an event. All viewers of one version who
// may do the same share the text. So the pages beyond the last one are the last one.
func (h *Handler) event(v *view, s *state, version <-chan struct{}, page int, canEnd bool) []byte {
	last := 1
	if v.path == "locks" {
		last = pagesOf(s.view.Held)
	}
	page = min(page, last)
	return h.fragments.get(version, v.path+"?"+strconv.Itoa(page)+strconv.FormatBool(canEnd), func() []byte {
		var b bytes.Buffer
		p := h.page(v.path, v.title, s, v.build(h, s, page), canEnd)
		if err := templates[v.path].ExecuteTemplate(&b, "event", p); err != nil {
			h.options.log.Error("lockui: a template failed", "view", v.path)
			return []byte(": \n\n")
		}
		return eventOf(b.Bytes())
	})
}

// eventOf returns html as an event of one line of data for each of its lines.
func eventOf(html []byte) []byte {
	var b bytes.Buffer
	b.WriteString("event: view\n")
	for line := range bytes.Lines(html) {
		b.WriteString("data: ")
		b.Write(bytes.ReplaceAll(bytes.TrimSuffix(line, []byte("\n")), []byte("\r"), nil))
		b.WriteByte('\n')
	}
	b.WriteByte('\n')
	return b.Bytes()
}
