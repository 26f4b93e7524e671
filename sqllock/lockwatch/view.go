package lockwatch

import (
	"cmp"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/latchkey-go/latchkey/internal/dialect"
	"github.com/latchkey-go/latchkey/sqllock"
)

// A View is a [Snapshot] for people: rows of texts, with names for keys where
// Sessions have written some. [Snapshot.String], the page of package lockui and
// latchkey ps show it. [NewView] makes one. It never changes, so it is safe for
// concurrent use.
//
// A text of a client ends after 200 bytes. Characters in it that do not print are
// escaped as in Go, so it changes no text around it. Names are in a View
// unless the Snapshot was taken [WithoutNames].
type View struct {
	*Snapshot
	Cycles []Cycle // those of [Snapshot.Cycles]
	Held   int     // locks that callers hold
	Waits  int     // rows of Waiting

	locks     []*Holder // those that most wait for first
	waiters   []*Waiter
	blocked   []*Blocked
	slots     map[dialect.Key]int // of OnlyID
	holders   map[dialect.Key][]*Holder
	callers   map[dialect.Key]int // that wait, by key
	processes map[int]Process
}

// A Row is a lock that is held, or a wait. Fields that are not known are zero.
type Row struct {
	Key   string `json:"key,omitempty"`   // as the arguments of PostgreSQL's functions; empty: a wait for a row, a table or the like
	Label string `json:"label,omitempty"` // the namespace and the beginning of the number; of a lock with a name: the name
	Slot  int    `json:"slot,omitempty"`  // of [View.OnlyID]
	Mode  string `json:"mode,omitempty"`  // "exclusive", "shared", "lease" or "polls"
	Client
	Namespace string     `json:"namespace,omitempty"`
	Name      string     `json:"name,omitempty"`  // of a lock: what its holder has called it
	Since     *time.Time `json:"since,omitempty"` // when the lock was acquired, or the wait began, by the database's clock
	Age       *Seconds   `json:"age_seconds,omitempty"`

	Heartbeat *Seconds `json:"heartbeat_age_seconds,omitempty"` // of a lock in the registry
	Expires   *Seconds `json:"expires_seconds,omitempty"`       // of a lease: the time left
	Waiters   int      `json:"waiters,omitempty"`               // of a lock: callers that wait for its key

	Callers   int      `json:"callers,omitempty"`    // of a wait
	Holding   string   `json:"holding,omitempty"`    // the label of the key that these callers hold
	BlockedBy []Client `json:"blocked_by,omitempty"` // of a wait, at most 8: holders of the key, or else processes ahead
}

// Seconds is a duration in seconds.
type Seconds float64

// A Client is one side of a wait: the client of a server process, or a session.
type Client struct {
	PID         int    `json:"pid,omitempty"`              // of the server process; 0: a lease, a prepared transaction, or not known
	Start       int64  `json:"process_start_us,omitempty"` // of that process, in microseconds since 1970
	Session     string `json:"session,omitempty"`          // the number of a Session that writes the registry, or of a session of a lease table
	Holder      string `json:"holder,omitempty"`           // host and process, as the Session has written them
	Application string `json:"application,omitempty"`
	Address     string `json:"address,omitempty"`
	State       string `json:"state,omitempty"` // what the process does, in the server's words
}

// String returns c in words, such as "process 12 (web-1/7, shop latchkey, 10.0.0.7)".
func (c Client) String() string {
	who := "a prepared transaction"
	if c.PID != 0 {
		who = "process " + strconv.Itoa(c.PID)
	} else if c.Session != "" {
		who = "session " + c.Session
	}
	if details := c.Details(); details != "" {
		who += " (" + details + ")"
	}
	return who
}

// Details returns the holder, the application and the address of c, as far as they
// are known.
func (c Client) Details() string {
	known := slices.DeleteFunc([]string{c.Holder, c.Application, c.Address}, func(text string) bool { return text == "" })
	return strings.Join(known, ", ")
}

// NewView returns s as a View. s must not change any more.
func NewView(s *Snapshot) *View {
	v := &View{Snapshot: s, holders: make(map[dialect.Key][]*Holder), callers: make(map[dialect.Key]int), processes: make(map[int]Process)}
	for i := range s.Waiters {
		w := &s.Waiters[i]
		v.waiters = append(v.waiters, w)
		v.callers[idOf(w.Key)] += w.callers()
		v.processes[w.Process.PID] = w.Process
	}
	for i := range s.Blocked {
		b := &s.Blocked[i]
		v.blocked = append(v.blocked, b)
		v.processes[b.Process.PID] = b.Process
	}
	for i := range s.Holders {
		h := &s.Holders[i]
		if !h.SecretCheck {
			v.locks = append(v.locks, h)
		}
		if h.Lease == nil {
			v.holders[idOf(h.Key)] = append(v.holders[idOf(h.Key)], h)
			v.processes[h.Process.PID] = h.Process
		}
	}
	slices.SortStableFunc(v.locks, func(a, b *Holder) int { return v.waitersOf(b) - v.waitersOf(a) })
	v.Cycles = newWaitGraph(v).cycles()
	v.count()
	return v
}

func (v *View) count() { v.Held, v.Waits = len(v.locks), len(v.waiters)+len(v.blocked) }

// OnlyID returns the part of v about an id: the holders and the waiters of every
// place of a limit, up to the thousandth, as ratelimit.AtMost numbers them. Slot of
// their rows is the place.
func (v *View) OnlyID(namespace sqllock.Namespace, id string) *View {
	const places = 1000
	slots := make(map[dialect.Key]int, places)
	for i := range places {
		slots[idOf(namespace.SlotKey(id, i))] = i
	}
	return v.only(slots)
}

// Only returns the part of v about key.
func (v *View) Only(key sqllock.Key) *View { return v.only(map[dialect.Key]int{idOf(key): 0}) }

func (v *View) only(slots map[dialect.Key]int) *View {
	part := *v
	part.slots, part.blocked, part.Cycles = slots, nil, nil
	part.locks = slices.DeleteFunc(slices.Clone(v.locks), func(h *Holder) bool { _, is := slots[idOf(h.Key)]; return !is })
	part.waiters = slices.DeleteFunc(slices.Clone(v.waiters), func(w *Waiter) bool { _, is := slots[idOf(w.Key)]; return !is })
	part.count()
	return &part
}

// Knows reports whether a lock of v is known to be of the namespace. Only the
// registry has namespaces.
func (v *View) Knows(n sqllock.Namespace) bool {
	return slices.ContainsFunc(v.Holders, func(h Holder) bool { return h.Registration != nil && h.Registration.Namespace == n })
}

// MakesWithSecret reports whether a Session makes the keys of the namespace with a
// secret (sqllock.Namespace.Keyed). Then [View.OnlyID] finds none of them: without
// the secret the key of an id is not known. It is known of Sessions with
// PostgreSQL's advisory locks alone.
func (v *View) MakesWithSecret(n sqllock.Namespace) bool {
	class := dialect.SecretCheckOf(string(n), 0).Class
	return slices.ContainsFunc(v.Holders, func(h Holder) bool { return h.SecretCheck && int32(idOf(h.Key).ID>>32) == class }) //nolint:gosec // the upper half
}

// Callers returns how many callers and processes wait.
func (v *View) Callers() (n int) {
	for _, w := range v.waiters {
		n += w.callers()
	}
	return n + len(v.blocked)
}

// Locks returns the rows of the locks that are held, from number from on and at
// most n. Those that most callers wait for come first.
func (v *View) Locks(from, n int) []Row {
	rows := []Row{}
	from = min(from, len(v.locks))
	for _, h := range v.locks[from:min(from+n, len(v.locks))] {
		row := h.row(v.At)
		row.Slot, row.Waiters = v.slots[idOf(h.Key)], v.waitersOf(h)
		rows = append(rows, row)
	}
	return rows
}

// Waiting returns the rows of the waits, at most n: by key, the longest wait first,
// and then those for rows, tables and the like.
func (v *View) Waiting(n int) []Row {
	rows := []Row{}
	for _, w := range v.waiters[:min(n, len(v.waiters))] {
		row := Row{Key: keyText(w.Key), Slot: v.slots[idOf(w.Key)], Mode: mode(w.Shared), Client: w.client(), Callers: w.callers()}
		row.Namespace = v.label(w.Key).namespace
		row.Label = label{namespace: row.Namespace}.withKey(w.Key).text
		row.Since, row.Age = since(w.Since, v.At)
		if w.Poll != nil {
			row.Mode = "polls"
			if w.Poll.Held != nil {
				row.Holding = v.label(*w.Poll.Held).text
			}
		}
		holders, pids := v.blockers(w)
		row.BlockedBy = v.clients(pids)
		for _, h := range holders[:min(len(holders), maxBlockers)] {
			row.BlockedBy = append(row.BlockedBy, h.client())
		}
		rows = append(rows, row)
	}
	for _, b := range v.blocked[:min(n-len(rows), len(v.blocked))] {
		rows = append(rows, Row{Client: clientOf(b.Process), Callers: 1, BlockedBy: v.clients(b.BlockedBy)})
	}
	return rows
}

// blockers returns the holders for which w waits. Only a waiter that waits for no
// holder waits for processes, which are ahead of it in the queue.
func (v *View) blockers(w *Waiter) (holders []*Holder, pids []int) {
	for _, h := range v.holders[idOf(w.Key)] {
		if w.Poll != nil || slices.Contains(w.BlockedBy, h.Process.PID) {
			holders = append(holders, h)
		}
	}
	if len(holders) == 0 {
		pids = w.BlockedBy
	}
	return holders, pids
}

const maxBlockers = 8 // of a row

func (v *View) clients(pids []int) (all []Client) {
	for _, pid := range pids[:min(len(pids), maxBlockers)] {
		p := v.processes[pid]
		p.PID = pid
		all = append(all, clientOf(p))
	}
	return all
}

// waitersOf returns how many callers wait for the lock of h. They are not known of
// a lease.
func (v *View) waitersOf(h *Holder) int {
	if h.Lease != nil {
		return 0
	}
	return v.callers[idOf(h.Key)]
}

// callers returns how many callers wait in w.
func (w *Waiter) callers() int {
	if w.Poll != nil {
		return w.Poll.Callers
	}
	return 1
}

func (w *Waiter) client() Client {
	c := clientOf(w.Process)
	if w.Poll != nil {
		c.State, c.Session, c.Holder = "", strconv.FormatInt(w.Poll.Session, 10), printable(w.Poll.Holder)
	}
	return c
}

// row returns the row of h, as of at.
func (h *Holder) row(at time.Time) Row {
	l := h.label()
	row := Row{Key: keyText(h.Key), Label: l.text, Mode: mode(h.Shared), Client: h.client(), Namespace: l.namespace, Name: l.name}
	row.Since, row.Age = since(h.acquired(), at)
	if r := h.Registration; r != nil {
		_, row.Heartbeat = since(r.Heartbeat, at)
	}
	if l := h.Lease; l != nil {
		row.Mode = "lease"
		_, row.Expires = since(at, l.Expires)
	}
	return row
}

// acquired returns since when h holds its lock, or the zero time if that is not
// known.
func (h *Holder) acquired() time.Time {
	switch {
	case h.Registration != nil:
		return h.Registration.Acquired
	case h.Lease != nil:
		return h.Lease.Acquired
	}
	return time.Time{}
}

func (h *Holder) client() Client {
	c := clientOf(h.Process)
	if r := h.Registration; r != nil {
		c.Session, c.Holder = strconv.FormatInt(r.Session, 10), printable(r.Holder)
	}
	if l := h.Lease; l != nil {
		c.Session, c.Holder = strconv.FormatInt(l.Session, 10), printable(l.Holder)
	}
	return c
}

func clientOf(p Process) Client {
	c := Client{PID: p.PID, Application: printable(p.Application), Address: printable(p.Address), State: printable(p.State)}
	if !p.Start.IsZero() {
		c.Start = p.Start.UnixMicro()
	}
	if p.State == "active" && p.WaitEvent != "" {
		c.State += ", waits: " + printable(p.WaitEvent)
	}
	return c
}

// A label is what people call a key.
type label struct{ text, namespace, name string }

// label returns the label of key. The registry has a name and a namespace for a key
// that is held.
func (v *View) label(key sqllock.Key) label {
	for _, h := range v.holders[idOf(key)] {
		if h.Registration != nil {
			return h.label()
		}
	}
	return label{}.withKey(key)
}

func (h *Holder) label() label {
	var l label
	if r := h.Registration; r != nil {
		l.namespace, l.name = printable(string(r.Namespace)), printable(r.Name)
	}
	return l.withKey(h.Key)
}

// withKey returns l with the text for key. A name is that of a lock, which its
// holder has given, so a waiter has none.
func (l label) withKey(key sqllock.Key) label {
	l.text = cmp.Or(l.name, strings.TrimPrefix(l.namespace+" "+shortText(key), " "))
	return l
}

// inText returns l as a part of a sentence.
func (l label) inText() string {
	if l.name != "" {
		return strconv.Quote(l.name)
	}
	return "key " + l.text
}

// since returns t, and the time from t to at, which is not negative. Both are nil if
// t is not known.
func since(t, at time.Time) (*time.Time, *Seconds) {
	if t.IsZero() {
		return nil, nil
	}
	age := Seconds(max(at.Sub(t), 0).Round(time.Millisecond).Seconds())
	return &t, &age
}

func mode(shared bool) string {
	if shared {
		return "shared"
	}
	return "exclusive"
}

// maxText bounds the texts of clients, in bytes. A client may write a name of any
// length.
const maxText = 200

// printable returns text, or its beginning if it is long, with the characters
// escaped that do not print. They could change how others appear.
func printable(text string) string {
	if len(text) > maxText {
		text = strings.ToValidUTF8(text[:maxText], "") + "…"
	}
	if utf8.ValidString(text) && !strings.ContainsFunc(text, func(r rune) bool { return !unicode.IsPrint(r) }) {
		return text
	}
	var b strings.Builder
	for _, r := range text {
		if unicode.IsPrint(r) {
			b.WriteRune(r)
		} else {
			b.WriteString(strings.Trim(strconv.QuoteRune(r), "'"))
		}
	}
	return b.String()
}
