package lockui

import (
	"net/http"
	"slices"
	"strconv"
	"strings"

	"github.com/latchkey-go/latchkey/ratelimit"
	"github.com/latchkey-go/latchkey/sqllock"
	"github.com/latchkey-go/latchkey/sqllock/lockwatch"
)

const (
	maxForm  = 16 << 10 // bytes of a form
	maxPlace = 64       // places of a limiter that a search covers
)

// A searchView has the holders and the waiters of one id. It has neither the id nor
// what else the form had, since an id may be personal data.
type searchView struct {
	Database databaseView `json:"database"`
	Locks    []lockRow    `json:"locks"`   // at most 200
	Waiters  []waitRow    `json:"waiters"` // at most 200
	Held     int          `json:"held"`    // all of them
	Waiting  int          `json:"waiting"`
	Places   int          `json:"places"`            // keys that the search covered
	Foreign  bool         `json:"unknown_namespace"` // no limiter of this page has the namespace, nor a lock in the registry
	Problem  string       `json:"problem,omitempty"`
}

// search finds the locks of an id. The form comes by POST, so that the id is in no
// address and in no log, and is hashed here.
func (h *Handler) search(w http.ResponseWriter, r *http.Request) {
	r.Body = http.MaxBytesReader(w, r.Body, maxForm)
	if err := r.ParseForm(); err != nil {
		http.Error(w, "The form cannot be read.", http.StatusBadRequest)
		return
	}
	s := h.poller.viewed(r.Context())
	v := searchView{Database: s.database(), Locks: []lockRow{}, Waiters: []waitRow{}}
	namespace := strings.TrimSpace(r.PostForm.Get("namespace"))
	keys, problem := h.keysOf(namespace, r.PostForm.Get("id"))
	v.Problem, v.Places = problem, len(keys)
	for _, key := range keys {
		if s.snapshot != nil {
			h.addTo(&v, s.snapshot, key)
		}
	}
	v.Foreign = problem == "" && namespace != "" && v.Held+v.Waiting == 0 && !h.knows(sqllock.Namespace(namespace), s.snapshot)
	status := http.StatusOK
	if problem != "" {
		status = http.StatusUnprocessableEntity
	}
	if wantsJSON(r) {
		writeJSON(w, status, v)
		return
	}
	h.writePage(w, status, "search", h.page("search", "Search", s, v, h.mayEnd(r)))
}

// addTo adds the holders and the waiters of key.
func (h *Handler) addTo(v *searchView, s *lockwatch.Snapshot, key sqllock.Key) {
	holders, waiters := s.Find(key)
	v.Held += len(holders)
	v.Waiting += len(waiters)
	for i := range holders[:min(len(holders), maxRows-len(v.Locks))] {
		v.Locks = append(v.Locks, h.lockRow(heldLock{&holders[i], len(waiters)}, s))
	}
	for i := range waiters[:min(len(waiters), maxRows-len(v.Waiters))] {
		v.Waiters = append(v.Waiters, h.waitRow(&waiters[i], s.At))
	}
}

// knows reports whether a limiter of this page has the namespace, or a lock in the
// registry.
func (h *Handler) knows(n sqllock.Namespace, s *lockwatch.Snapshot) bool {
	return slices.ContainsFunc(h.options.limiters, func(l *ratelimit.Limiter) bool { return l.Namespace() == n }) ||
		s != nil && slices.ContainsFunc(s.Holders, func(x lockwatch.Holder) bool { return x.Registration != nil && x.Registration.Namespace == n })
}

// keysOf returns the keys of id, or a sentence that says what is wrong. A limiter of
// that namespace may use a key for each of its places.
func (h *Handler) keysOf(namespace, id string) (keys []sqllock.Key, problem string) {
	if namespace == "" {
		number, err := strconv.ParseInt(strings.TrimSpace(id), 10, 64)
		if err != nil {
			return nil, "Without a namespace the id must be a number, as in sqllock.ID."
		}
		return []sqllock.Key{sqllock.ID(number)}, ""
	}
	if strings.ContainsAny(namespace, ":#") {
		return nil, "A namespace holds neither ':' nor '#'."
	}
	ns, places := sqllock.Namespace(namespace), 1
	for _, l := range h.options.limiters {
		if l.Namespace() == ns {
			places = max(places, min(l.Limit(), maxPlace))
		}
	}
	for i := range places {
		keys = append(keys, ns.SlotKey(id, i))
	}
	return keys, ""
}
