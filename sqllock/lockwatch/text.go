package lockwatch

import (
	"fmt"
	"io"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/latchkey-go/latchkey/sqllock"
)

// String returns s as tables for people: holders, waiters, what is not seen, and at
// the end the [Snapshot.Cycles]. Names appear where the registry has them, so keep
// the text out of logs. Holders with SecretCheck do not appear.
func (s *Snapshot) String() string { return NewView(s).String() }

// String returns v as the text of [Snapshot.String].
func (v *View) String() string {
	var b strings.Builder
	table := tabwriter.NewWriter(&b, 0, 0, 2, ' ', 0)
	line(table, "HELD KEY", "MODE", "PID", "APPLICATION", "ADDRESS", "STATE", "FOR", "HEARTBEAT", "NAMESPACE", "NAME", "HOLDER")
	for _, r := range v.Locks(0, v.Held) {
		heartbeat := ""
		if r.Heartbeat != nil {
			heartbeat = r.Heartbeat.text() + " ago"
		} else if r.Expires != nil {
			heartbeat = "ends in " + r.Expires.text()
		}
		line(table, r.keyCell(), r.Mode, r.pid(), r.Application, r.Address, r.State, r.Age.text(), heartbeat, r.Namespace, r.Name, r.Holder)
	}
	_ = table.Flush() // into memory
	line(table, "WANTED KEY", "MODE", "PID", "APPLICATION", "ADDRESS", "STATE", "FOR", "BLOCKED BY", "NAMESPACE", "HOLDER", "CALLERS")
	for _, r := range v.Waiting(v.Waits) {
		key, holder, callers := r.keyCell(), r.Holder, strconv.Itoa(r.Callers)
		if key == "" {
			key = "a row, a table or the like"
		}
		if r.PID == 0 && r.Session != "" {
			holder = "session " + r.Session
		}
		if r.Holding != "" {
			callers += ", holding " + r.Holding
		}
		var blockers []string
		for _, c := range r.BlockedBy {
			blockers = append(blockers, c.pid())
		}
		line(table, key, r.Mode, r.pid(), r.Application, r.Address, r.State, r.Age.text(), strings.Join(blockers, " "), r.Namespace, holder, callers)
	}
	_ = table.Flush()
	if n := len(v.Expired); n > 0 && v.slots == nil {
		fmt.Fprintf(&b, "locks whose lease has expired, so that they are free: %d\n", n)
	}
	for _, gap := range v.Gaps() {
		fmt.Fprintf(&b, "note: %s\n", gap)
	}
	for _, c := range v.Cycles {
		fmt.Fprintf(&b, "cycle: %v\n", c)
	}
	return b.String()
}

func (r Row) keyCell() string {
	if r.Slot > 0 {
		return r.Key + " (slot " + strconv.Itoa(r.Slot) + ")"
	}
	return r.Key
}

func (c Client) pid() string {
	if c.PID == 0 {
		return ""
	}
	return strconv.Itoa(c.PID)
}

func (s *Seconds) text() string {
	if s == nil {
		return ""
	}
	return time.Duration(float64(*s) * float64(time.Second)).Round(time.Millisecond).String()
}

// line writes one line of a table. Users choose the names in it, so a cell that
// could be read as two cells, as an empty one or as a quoted one is quoted.
func line(w io.Writer, cells ...string) {
	for i, c := range cells {
		switch {
		case c == "":
			cells[i] = "-"
		case c == "-", strings.HasPrefix(c, `"`), strings.HasPrefix(c, " "), strings.HasSuffix(c, " "), strings.Contains(c, "  "):
			cells[i] = strconv.Quote(c)
		}
	}
	fmt.Fprintln(w, strings.Join(cells, "\t"))
}

// Gaps returns sentences about what s does not show in full, and what to change.
// They hold no names.
func (s *Snapshot) Gaps() (gaps []string) {
	advice := map[TableState]string{
		TableMissing:    " Create the tables of lockwatch.Schema and open each Session with WithRegistry, or name their schema (WithSchema, or --schema).",
		TableUntrusted:  " Its owner is neither this role nor the database's owner nor a superuser: name its schema (WithSchema, or --schema) if you trust the owner.",
		TableUnreadable: " Grant this role SELECT.",
	}
	missing := func(what, table string, state TableState) {
		if state != TableRead && state != "" {
			gaps = append(gaps, what+" not known: table "+table+" is "+string(state)+"."+advice[state])
		}
	}
	missing("Namespaces, names, ages and late heartbeats are", "latchkey_heartbeats", s.Heartbeats)
	if s.Dialect != sqllock.PostgreSQL || s.Leases != TableMissing { // few databases of PostgreSQL have leases
		missing("Leases are", "latchkey_sessions or latchkey_locks", s.Leases)
	}
	if s.Hidden > 0 {
		gaps = append(gaps, fmt.Sprintf("Registrations that this role may not check: %d. It may not see when other roles' sessions started: grant it pg_read_all_stats (or pg_monitor).", s.Hidden))
	}
	if s.Waits == s.Heartbeats {
		clear(advice) // it is there already
	}
	missing("Callers that wait in a Session are", "latchkey_waits", s.Waits)
	if s.Waits == "" {
		gaps = append(gaps, "Callers that wait in a Session are not known: this kind of database has no registry.")
	}
	return gaps
}
