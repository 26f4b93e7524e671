package lockui

import (
	"context"
	"database/sql"
	"log/slog"
	"net/http"
	"slices"
	"strings"
)

// A Handler serves the page. [New] makes one, and Close ends it. It is safe for
// concurrent use.
//
// It may be mounted under any prefix that ends in a slash, and behind a reverse
// proxy. All its links are relative. With [http.ServeMux] it finds its prefix
// itself, and so it does with chi, if Mount is called on the outermost router.
// Another router needs [http.StripPrefix].
//
// Without [WithAuthorize] it answers a request only if all of this is true, and
// otherwise with 403:
//   - The connection comes from a loopback address.
//   - The Host is localhost or a loopback address.
//   - No header shows that the request came through a proxy.
type Handler struct {
	options   options
	db        *sql.DB
	poller    *poller
	doctor    doctor
	crossSite *http.CrossOriginProtection
	routes    map[string]route // by the path below the mount point

	closing context.Context // ends with Close
	cancel  context.CancelFunc
}

// New returns a Handler for the locks of db's database. It makes no request until
// the page is viewed.
//
// A look at the locks takes one connection of db's pool for a moment. See
// [lockwatch.Inspect] for the rights that it needs.
//
// New panics if db is nil.
func New(db *sql.DB, opts ...Option) *Handler {
	if db == nil {
		panic("lockui: New needs a *sql.DB that is not nil")
	}
	o := options{log: slog.Default()}
	for _, opt := range opts {
		opt(&o)
	}
	return newHandler(db, o, newLook(db, o), newCheck(db, o))
}

func newHandler(db *sql.DB, o options, look lookFunc, check checkFunc) *Handler {
	h := &Handler{options: o, db: db, crossSite: http.NewCrossOriginProtection()}
	h.closing, h.cancel = context.WithCancel(context.Background())
	h.doctor.check, h.doctor.one = check, make(chan struct{}, 1)
	h.poller = newPoller(h.closing, look, o.diagnosis())
	h.routes = h.newRoutes()
	return h
}

// Close ends the look under way, and waits for it. Requests after it get 503. A
// second call does nothing. The error is always nil.
func (h *Handler) Close() error {
	h.cancel()
	h.poller.wait()
	return nil
}

// A route serves one path.
type route struct {
	methods string // those allowed besides HEAD, with commas between them
	serve   http.HandlerFunc
}

func (h *Handler) newRoutes() map[string]route {
	routes := map[string]route{
		"search":     {"POST", h.search},
		"robots.txt": {"GET", robots},
	}
	for i := range views {
		v := &views[i]
		routes[v.path] = route{"GET", func(w http.ResponseWriter, r *http.Request) { h.view(w, r, v) }}
	}
	examined := routes["doctor"].serve
	routes["doctor"] = route{"GET, POST", func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodPost {
			h.examine(w, r)
		} else {
			examined(w, r)
		}
	}}
	for _, a := range assets {
		routes[a.path] = route{"GET", a.serve}
	}
	if h.options.terminate != nil {
		routes["terminate"] = route{"GET, POST", h.terminate}
	}
	return routes
}

// ServeHTTP implements [http.Handler].
func (h *Handler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	setSecurityHeaders(w.Header())
	if why := h.refusal(r); why != "" {
		http.Error(w, why, http.StatusForbidden)
		return
	}
	if h.crossSite.Check(r) != nil || fromOtherSite(r) {
		http.Error(w, "This request came from another web site.", http.StatusForbidden)
		return
	}
	below, bare := pathBelow(r)
	if bare {
		redirectToFolder(w, r)
		return
	}
	matched, ok := h.routes[below]
	if !ok {
		http.Error(w, "There is no such page.", http.StatusNotFound)
		return
	}
	method := r.Method
	if method == http.MethodHead {
		method = http.MethodGet
	}
	if !slices.Contains(strings.Split(matched.methods, ", "), method) {
		w.Header().Set("Allow", strings.Replace(matched.methods, "GET", "GET, HEAD", 1))
		http.Error(w, "This page does not have that method.", http.StatusMethodNotAllowed)
		return
	}
	if h.closing.Err() != nil {
		http.Error(w, "This page is closed.", http.StatusServiceUnavailable)
		return
	}
	matched.serve(w, r)
}

func robots(w http.ResponseWriter, _ *http.Request) {
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	_, _ = w.Write([]byte("User-agent: *\nDisallow: /\n"))
}
