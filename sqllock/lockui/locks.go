package lockui

import (
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/latchkey-go/latchkey/sqllock"
	"github.com/latchkey-go/latchkey/sqllock/lockwatch"
)

const (
	rowsPerPage = 100 // of the list of locks
	maxRows     = 200 // of every other list
)

// A lockRow is a held lock. The names are empty without WithNames.
type lockRow struct {
	Key       string   `json:"key"` // the number in the database, as a text: JavaScript would round it
	Mode      string   `json:"mode"`
	PID       int      `json:"pid,omitempty"`              // 0: a row of a lease table, or a prepared transaction
	Start     int64    `json:"process_start_us,omitempty"` // of the server process, microseconds since 1970; 0: not known
	State     string   `json:"state,omitempty"`
	Namespace string   `json:"namespace,omitempty"`
	Session   string   `json:"lease_session,omitempty"` // of a lease table: the session that holds the row, as a text
	Held      *seconds `json:"held_seconds,omitempty"`
	Heartbeat *seconds `json:"heartbeat_age_seconds,omitempty"`
	Expires   *seconds `json:"expires_seconds,omitempty"` // of a lease table: from now to the end of the lease
	Waiters   int      `json:"waiters"`

	Name        string `json:"name,omitempty"`
	Holder      string `json:"holder,omitempty"`
	Application string `json:"application,omitempty"`
	Address     string `json:"address,omitempty"`
}

// A waitRow is a wait for a lock. The names are empty without WithNames.
type waitRow struct {
	Key       string   `json:"key,omitempty"` // empty: a row, a table or the like
	Mode      string   `json:"mode"`          // "shared", "exclusive", "polls", or empty
	PID       int      `json:"pid,omitempty"` // 0: callers of a Session
	Start     int64    `json:"process_start_us,omitempty"`
	State     string   `json:"state,omitempty"`
	Callers   int      `json:"callers"`
	Session   string   `json:"session,omitempty"` // the random number of the Session, as a text
	Holding   string   `json:"holding,omitempty"` // the key that the callers hold meanwhile
	Waits     *seconds `json:"waits_seconds,omitempty"`
	BlockedBy []int    `json:"blocked_by,omitempty"` // PIDs

	Application string `json:"application,omitempty"`
	Address     string `json:"address,omitempty"`
}

type locksView struct {
	Database databaseView `json:"database"`
	Total    int          `json:"total"`
	Page     int          `json:"page"`
	Pages    int          `json:"pages"`
	Locks    []lockRow    `json:"locks"`
}

// locks shows one page of the held locks. Those that are waited for come first.
func (h *Handler) locks(s *state, page int) any {
	v := locksView{Database: s.database(), Total: len(s.locks), Locks: []lockRow{}}
	v.Pages = pagesOf(v.Total)
	v.Page = min(page, v.Pages)
	from := (v.Page - 1) * rowsPerPage
	for _, x := range s.locks[from:min(from+rowsPerPage, v.Total)] {
		v.Locks = append(v.Locks, h.lockRow(x, s.snapshot))
	}
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

// A heldLock is a holder with the number of those that wait for its key.
type heldLock struct {
	*lockwatch.Holder
	waiters int
}

// heldLocks returns the locks of s that callers hold. Those that most wait for come
// first.
func heldLocks(s *lockwatch.Snapshot) (all []heldLock) {
	waiters := make(map[sqllock.Key]int)
	for i := range s.Waiters {
		waiters[s.Waiters[i].Key] += callers(&s.Waiters[i])
	}
	for i := range s.Holders {
		if !s.Holders[i].SecretCheck {
			all = append(all, heldLock{&s.Holders[i], waiters[s.Holders[i].Key]})
		}
	}
	slices.SortStableFunc(all, func(a, b heldLock) int { return b.waiters - a.waiters })
	return all
}

// callers returns how many wait in w.
func callers(w *lockwatch.Waiter) int {
	if w.Poll != nil {
		return w.Poll.Callers
	}
	return 1
}

func (h *Handler) lockRow(x heldLock, s *lockwatch.Snapshot) lockRow {
	row := lockRow{Key: keyText(x.Key), Mode: mode(x.Shared), PID: x.Process.PID, Start: startOf(x.Process), State: stateText(x.Process), Waiters: x.waiters}
	if r := x.Registration; r != nil {
		row.Namespace = clip(string(r.Namespace))
		row.Held, row.Heartbeat = since(r.Acquired, s.At), since(r.Heartbeat, s.At)
	}
	if l := x.Lease; l != nil {
		row.Session = strconv.FormatInt(l.Session, 10)
		row.Held, row.Expires = since(l.Acquired, s.At), since(s.At, l.Expires)
	}
	if !h.options.names {
		return row
	}
	row.Application, row.Address = clip(x.Process.Application), clip(x.Process.Address)
	if l := x.Lease; l != nil {
		row.Holder = clip(l.Holder)
	}
	if r := x.Registration; r != nil {
		row.Name, row.Holder = clip(r.Name), clip(r.Holder)
	}
	return row
}

func (h *Handler) waitRow(w *lockwatch.Waiter, at time.Time) waitRow {
	row := waitRow{Key: keyText(w.Key), Mode: mode(w.Shared), PID: w.Process.PID, Start: startOf(w.Process), State: stateText(w.Process),
		Callers: callers(w), Waits: since(w.Since, at), BlockedBy: w.BlockedBy}
	if w.Poll != nil {
		row.Mode, row.State, row.Session = "polls", "", strconv.FormatInt(w.Poll.Session, 10)
		if w.Poll.Held != nil {
			row.Holding = keyText(*w.Poll.Held)
		}
	}
	if h.options.names {
		row.Application, row.Address = clip(w.Process.Application), clip(w.Process.Address)
	}
	return row
}

func (h *Handler) blockedRow(b *lockwatch.Blocked) waitRow {
	row := waitRow{PID: b.Process.PID, Start: startOf(b.Process), State: stateText(b.Process), Callers: 1, BlockedBy: b.BlockedBy}
	if h.options.names {
		row.Application, row.Address = clip(b.Process.Application), clip(b.Process.Address)
	}
	return row
}

// maxText bounds the texts of clients, in bytes. A client may write a name of any
// length.
const maxText = 200

// clip returns text, or its beginning if it is too long.
func clip(text string) string {
	if len(text) <= maxText {
		return text
	}
	return strings.ToValidUTF8(text[:maxText], "") + "…"
}

func mode(shared bool) string {
	if shared {
		return "shared"
	}
	return "exclusive"
}

// startOf returns the start of p in microseconds since 1970, or 0 if it is hidden.
func startOf(p lockwatch.Process) int64 {
	if p.Start.IsZero() {
		return 0
	}
	return p.Start.UnixMicro()
}

// stateText returns what p does, in the server's own words.
func stateText(p lockwatch.Process) string {
	if p.State == "active" && p.WaitEvent != "" {
		return p.State + ", waits: " + p.WaitEvent
	}
	return p.State
}
