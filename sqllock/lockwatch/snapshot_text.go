package lockwatch

import (
	"fmt"
	"io"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"
	"unicode"

	"github.com/latchkey-go/latchkey/sqllock"
)

// String returns s as tables for people: holders, waiters, and at the end the
// [Snapshot.Cycles]. Keys appear as numbers. Names appear where the registry has
// them, so keep the text out of logs. Holders with SecretCheck do not appear.
func (s *Snapshot) String() string {
	var b strings.Builder
	s.writeHolders(&b)
	s.writeWaiters(&b)
	for _, x := range s.Blocked {
		fmt.Fprintf(&b, "process %d waits for a row, a table or the like of %s\n", x.Process.PID, pids(x.BlockedBy))
	}
	for _, table := range []unreadTable{
		{"latchkey_heartbeats", s.Heartbeats, " (late heartbeats, names and ages are not known; lockwatch.Schema makes it, WithRegistry writes it)"},
		{"latchkey_waits", s.Waits, " (callers that wait in a Session are not known; lockwatch.Schema makes it, WithRegistry writes it)"},
		{"latchkey_sessions or latchkey_locks", s.unreadLeases(), ""},
	} {
		if table.state != TableRead && table.state != "" {
			fmt.Fprintf(&b, "table %s: %s%s\n", table.name, table.state.reason(), table.advice())
		}
	}
	if len(s.Expired) > 0 {
		fmt.Fprintf(&b, "locks whose lease has expired, so that they are free: %d\n", len(s.Expired))
	}
	if s.Hidden > 0 {
		fmt.Fprintf(&b, "registrations that this role may not check: %d (grant pg_read_all_stats)\n", s.Hidden)
	}
	for _, c := range s.Cycles() {
		fmt.Fprintf(&b, "cycle: %v\n", c)
	}
	return b.String()
}

// An unreadTable is a table that a Snapshot may lack.
type unreadTable struct {
	name      string
	state     TableState
	ifMissing string // what is not known, and where the table comes from
}

func (t unreadTable) advice() string {
	if t.state != TableMissing {
		return ""
	}
	return t.ifMissing
}

// unreadLeases returns the state of the lease tables, if they should have been
// read. Few databases of PostgreSQL have some.
func (s *Snapshot) unreadLeases() TableState {
	if s.Dialect == sqllock.PostgreSQL && s.Leases == TableMissing {
		return ""
	}
	return s.Leases
}

func (s *Snapshot) writeHolders(w io.Writer) {
	table := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	row(table, "HELD KEY", "MODE", "PID", "APPLICATION", "ADDRESS", "STATE", "FOR", "HEARTBEAT", "NAMESPACE", "NAME", "HOLDER")
	for _, h := range s.Holders {
		if h.SecretCheck {
			continue
		}
		p := h.Process
		cells := []string{keyText(h.Key), mode(h.Shared), strconv.Itoa(p.PID), p.Application, p.Address, p.State, "", "", "", "", ""}
		if r := h.Registration; r != nil {
			cells = append(cells[:6], s.age(r.Acquired), s.age(r.Heartbeat)+" ago", string(r.Namespace), r.Name, r.Holder)
		}
		if l := h.Lease; l != nil {
			left := l.Expires.Sub(s.At).Round(time.Millisecond).String()
			cells = []string{keyText(h.Key), "lease", "", "", "", "", s.age(l.Acquired), "ends in " + left, "", "", l.Holder}
		}
		row(table, cells...)
	}
	_ = table.Flush() // into memory
}

func (s *Snapshot) writeWaiters(w io.Writer) {
	table := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	row(table, "WANTED KEY", "MODE", "PID", "APPLICATION", "ADDRESS", "STATE", "FOR", "BLOCKED BY", "WHO")
	for _, x := range s.Waiters {
		if poll := x.Poll; poll != nil {
			who := fmt.Sprintf("callers of session %d: %d", poll.Session, poll.Callers)
			if poll.Held != nil {
				who += ", holding " + keyText(*poll.Held)
			}
			row(table, keyText(x.Key), "polls", "", "", "", "", s.age(x.Since), "", who)
			continue
		}
		p := x.Process
		row(table, keyText(x.Key), mode(x.Shared), strconv.Itoa(p.PID), p.Application, p.Address, p.State, s.age(x.Since), pids(x.BlockedBy), "")
	}
	_ = table.Flush() // into memory
}

// row writes one line of a table. Users choose the names in it, so a cell that
// could be read as another one is quoted.
func row(w io.Writer, cells ...string) {
	for i, c := range cells {
		switch {
		case c == "":
			cells[i] = "-"
		case forges(c):
			cells[i] = strconv.Quote(c)
		}
	}
	fmt.Fprintln(w, strings.Join(cells, "\t"))
}

// forges reports whether a cell with this text would look like two cells, like an
// empty one, or like a quoted one.
func forges(text string) bool {
	return text == "-" || strings.HasPrefix(text, `"`) || strings.HasPrefix(text, " ") || strings.HasSuffix(text, " ") || strings.Contains(text, "  ") ||
		strings.ContainsFunc(text, func(r rune) bool { return !unicode.IsPrint(r) })
}

// age returns the time from t to s, or "" if t is not known.
func (s *Snapshot) age(t time.Time) string {
	if t.IsZero() {
		return ""
	}
	return s.At.Sub(t).Round(time.Millisecond).String()
}

func mode(shared bool) string {
	if shared {
		return "shared"
	}
	return "exclusive"
}

func pids(all []int) string {
	texts := make([]string, len(all))
	for i, pid := range all {
		texts[i] = strconv.Itoa(pid)
	}
	return strings.Join(texts, " ")
}
