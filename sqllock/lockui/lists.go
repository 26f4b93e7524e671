package lockui

import (
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/latchkey-go/latchkey/sqllock"
	"github.com/latchkey-go/latchkey/sqllock/lockwatch"
)

const (
	rowsPerPage = 100      // of the list of locks
	maxRows     = 200      // of every other list
	maxForm     = 16 << 10 // bytes of a form
)

type locksView struct {
	Database databaseView    `json:"database"`
	Total    int             `json:"total"`
	Page     int             `json:"page"`
	Pages    int             `json:"pages"`
	Locks    []lockwatch.Row `json:"locks"`
}

// locks shows one page of the held locks. Those that are waited for come first.
func (h *Handler) locks(s *state, page int) any {
	v := locksView{Database: s.database(), Total: s.view.Held, Pages: pagesOf(s.view.Held)}
	v.Page = min(page, v.Pages)
	v.Locks = s.view.Locks((v.Page-1)*rowsPerPage, rowsPerPage)
	return v
}

// pagesOf returns the number of pages of a list, at least one.
func pagesOf(rows int) int { return max((rows+rowsPerPage-1)/rowsPerPage, 1) }

// Previous and Next are pages of the list, or 0.
func (v locksView) Previous() int { return v.Page - 1 }

// Next is the page after this one, or 0.
func (v locksView) Next() int {
	if v.Page == v.Pages {
		return 0
	}
	return v.Page + 1
}

type waitsView struct {
	Database databaseView      `json:"database"`
	Total    int               `json:"total"` // waits, of which Waiters has at most 200
	Waiters  []lockwatch.Row   `json:"waiters"`
	Cycles   []lockwatch.Cycle `json:"cycles"` // at most 200
}

// waits shows who waits for whom, and the cycles.
func (h *Handler) waits(s *state, _ int) any {
	v := waitsView{Database: s.database(), Total: s.view.Waits, Waiters: s.view.Waiting(maxRows), Cycles: []lockwatch.Cycle{}}
	v.Cycles = append(v.Cycles, s.view.Cycles[:min(len(s.view.Cycles), maxRows)]...)
	return v
}

// More returns how many waits are not in Waiters.
func (v waitsView) More() int { return v.Total - len(v.Waiters) }

// A findingView is something that lasts, or that has ended.
type findingView struct {
	Kind  string           `json:"kind"`
	Over  bool             `json:"over"`
	Since string           `json:"since"` // RFC 3339, by the database's clock
	Age   *seconds         `json:"age_seconds,omitempty"`
	Text  string           `json:"text"`
	Lock  *lockwatch.Row   `json:"lock,omitempty"`
	Cycle *lockwatch.Cycle `json:"cycle,omitempty"`
}

type findingsView struct {
	Database databaseView  `json:"database"`
	Total    int           `json:"total"`
	Open     []findingView `json:"open"` // at most 200
	Past     []findingView `json:"past"` // at most 50, the last one first
}

// findings shows what the looks of this page have found.
func (h *Handler) findings(s *state, _ int) any {
	return findingsView{Database: s.database(), Total: len(s.open), Open: findingsOf(s, s.open[:min(len(s.open), maxRows)]), Past: findingsOf(s, s.past)}
}

// More returns how many findings are not in Open.
func (v findingsView) More() int { return v.Total - len(v.Open) }

func findingsOf(s *state, findings []lockwatch.Finding) []findingView {
	all := []findingView{}
	for _, f := range findings {
		v := findingView{
			Kind: string(f.Kind), Over: f.Over, Since: f.Since.UTC().Format(time.RFC3339), Age: since(f.Since, s.view.At),
			Text: meanings[f.Kind], Lock: f.Row(s.view.At), Cycle: f.Cycle,
		}
		if f.Holder != nil && f.Holder.Lease != nil && f.Kind == lockwatch.LateHeartbeat {
			v.Text = "The session of this lock in the lease table has not renewed its lease, or the lease has expired. An expired lock is free for the next caller."
		}
		all = append(all, v)
	}
	return all
}

// meanings says what a finding means, and what to do.
var meanings = map[lockwatch.FindingKind]string{
	lockwatch.LateHeartbeat:      "The holder has sent no heartbeat for half of its lease, and its server process is idle. It may be frozen or cut off. The server ends its session after the lease.",
	lockwatch.RegistryNotWritten: "The holder's session works, but its heartbeats are not written. Look at the log of that process.",
	lockwatch.HeldLong:           "The lock is held for longer than lockui.WithLongHeld allows. The page's search and the log of the holder's process show whether it still works.",
	lockwatch.WaitCycle:          "Each of these waits for the next one. None goes on until one gives up or is ended.",
}

// A searchView has the holders and the waiters of one id. It has neither the id nor
// what else the form had, since an id may be personal data.
type searchView struct {
	Database databaseView    `json:"database"`
	Locks    []lockwatch.Row `json:"locks"`   // at most 200
	Waiters  []lockwatch.Row `json:"waiters"` // at most 200
	Held     int             `json:"held"`    // all of them
	Waiting  int             `json:"waiting"`
	Foreign  bool            `json:"unknown_namespace"` // no limiter of this page has the namespace, nor a lock in the registry
	Problem  string          `json:"problem,omitempty"`
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
	found, problem := find(s.view, strings.TrimSpace(r.PostForm.Get("namespace")), r.PostForm.Get("id"))
	v := searchView{Database: s.database(), Problem: problem, Locks: found.Locks(0, maxRows), Waiters: found.Waiting(maxRows), Held: found.Held, Waiting: found.Callers()}
	if n := sqllock.Namespace(strings.TrimSpace(r.PostForm.Get("namespace"))); problem == "" && n != "" && v.Held+v.Waiting == 0 {
		v.Foreign = !s.view.Knows(n) && !slices.ContainsFunc(h.options.limiters, func(l Limiter) bool { return l.Namespace() == n })
	}
	status := http.StatusOK
	if problem != "" {
		status = http.StatusUnprocessableEntity
	}
	h.respond(w, r, status, "layout", h.page("search", "Search", s, v, h.mayEnd(r)))
}

// find returns the part of v about an id, or a sentence that says what is wrong.
func find(v *lockwatch.View, namespace, id string) (found *lockwatch.View, problem string) {
	nothing := lockwatch.NewView(new(lockwatch.Snapshot))
	if strings.ContainsAny(namespace, ":#") {
		return nothing, "A namespace holds neither ':' nor '#'."
	}
	if namespace != "" {
		return v.OnlyID(sqllock.Namespace(namespace), id), ""
	}
	number, err := strconv.ParseInt(strings.TrimSpace(id), 10, 64)
	if err != nil {
		return nothing, "Without a namespace the id must be a number, as in sqllock.ID."
	}
	return v.Only(sqllock.ID(number)), ""
}
