package lockui

import (
	"bytes"
	"net/http"
	"net/url"
	"strconv"
	"time"

	"github.com/latchkey-go/latchkey/sqllock/lockwatch"
)

// A view is one page of the Handler, as HTML and as JSON.
type view struct {
	path  string // below the mount point
	title string
	build func(h *Handler, s *state, page int) any // what the templates and the JSON show
}

// views are in the order of the page's navigation.
var views = []view{
	{"", "Overview", (*Handler).overview},
	{"locks", "Locks", (*Handler).locks},
	{"waits", "Waits", (*Handler).waits},
	{"findings", "Findings", (*Handler).findings},
	{"doctor", "Doctor", (*Handler).examined},
}

// view serves v.
func (h *Handler) view(w http.ResponseWriter, r *http.Request, v *view) {
	s := h.poller.viewed(r.Context())
	query := r.URL.Query()
	p := h.page(v.path, v.title, s, v.build(h, s, pageNumber(query)), h.mayEnd(r))
	p.Live = true
	part := "layout"
	if query.Get("part") == "changing" { // which the script asks for
		part = "changing"
	}
	h.respond(w, r, http.StatusOK, part, p)
}

// respond writes the body of p as JSON, or a part of p as HTML: "layout" is all of
// it.
func (h *Handler) respond(w http.ResponseWriter, r *http.Request, status int, part string, p page) {
	if wantsJSON(r) {
		writeJSON(w, status, p.Body)
		return
	}
	var b bytes.Buffer
	if err := templates[p.Path].ExecuteTemplate(&b, part, p); err != nil {
		h.options.log.Error("lockui: a template failed", "view", p.Path)
		http.Error(w, "The page cannot be shown.", http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", "text/html; charset=utf-8")
	w.Header().Set("Vary", "Accept")
	w.WriteHeader(status)
	_, _ = w.Write(b.Bytes())
}

// A page is what the templates get.
type page struct {
	Title      string
	Path       string
	Views      []view
	Script     string // its address
	Style      string
	Live       bool // the script asks for its changing part again and again
	Names      bool
	CanEnd     bool // this viewer may end sessions
	Namespaces []string
	Body       any
	Database   databaseView
	Summary    string // for screen readers: it changes only with what matters
}

// Address returns the link to v, relative to every page.
func (v view) Address() string {
	if v.path == "" {
		return "./"
	}
	return v.path
}

// Name returns the text of the link.
func (v view) Name() string { return v.title }

// mayEnd reports whether the viewer of r may end sessions.
func (h *Handler) mayEnd(r *http.Request) bool {
	return h.options.terminate != nil && h.options.terminate(r)
}

func (h *Handler) page(path, title string, s *state, body any, canEnd bool) page {
	p := page{
		Title: title, Path: path, Views: views, Script: scriptAsset.path, Style: styleAsset.path,
		Names: h.options.names, CanEnd: canEnd, Body: body, Database: s.database(),
	}
	for _, l := range h.options.limiters {
		p.Namespaces = append(p.Namespaces, string(l.Namespace()))
	}
	p.Summary = p.Database.Text
	switch n := len(s.open); n {
	case 0:
	case 1:
		p.Summary += " 1 finding."
	default:
		p.Summary += " " + strconv.Itoa(n) + " findings."
	}
	return p
}

// pageNumber returns the number of the page of a list, from 1.
func pageNumber(q url.Values) int {
	n, err := strconv.Atoi(q.Get("page"))
	if err != nil || n < 1 {
		return 1
	}
	return n
}

type seconds = lockwatch.Seconds

func secondsOf(d time.Duration) seconds { return seconds(d.Round(time.Millisecond).Seconds()) }

// since returns the time from t to at, or nil if t is not known. It is not negative.
func since(t, at time.Time) *seconds {
	if t.IsZero() {
		return nil
	}
	s := secondsOf(max(at.Sub(t), 0))
	return &s
}
