package main

import (
	"maps"
	"strconv"
	"time"

	"github.com/latchkey-go/latchkey/sqllock"
	"github.com/latchkey-go/latchkey/sqllock/lockwatch"
)

// The form of latchkey ps --json. A field that is not known is left out. Keys
// are texts, because many readers of JSON round numbers of 64 bits.

type snapshotJSON struct {
	At      time.Time             `json:"at"`
	Holders []holderJSON          `json:"holders"`
	Waiters []waiterJSON          `json:"waiters"`
	Cycles  []string              `json:"cycles"`
	Tables  map[string]tableState `json:"tables"` // "read", or why what a table has is not known
}

type tableState = lockwatch.TableState

type holderJSON struct {
	Key    string `json:"key"` // as the arguments of pg_advisory_lock
	Shared bool   `json:"shared,omitempty"`
	processJSON
	Session   string     `json:"session,omitempty"` // the number of the Session, or of the session of a lease table
	Namespace string     `json:"namespace,omitempty"`
	Name      string     `json:"name,omitempty"`
	Holder    string     `json:"holder,omitempty"`
	Acquired  *time.Time `json:"acquired,omitempty"`
	Heartbeat *time.Time `json:"heartbeat,omitempty"`
	Expires   *time.Time `json:"expires,omitempty"` // unless there is a heartbeat before
}

type waiterJSON struct {
	Key    string     `json:"key"`
	Shared bool       `json:"shared,omitempty"`
	Since  *time.Time `json:"since,omitempty"`
	processJSON
	BlockedBy []int  `json:"blocked_by,omitempty"`
	Session   string `json:"session,omitempty"` // the number of a Session that polls
	Callers   int    `json:"callers,omitempty"` // of that Session
	Holding   string `json:"holding,omitempty"` // the key that these callers hold
}

type processJSON struct {
	PID         int    `json:"pid,omitempty"`
	Application string `json:"application,omitempty"`
	Address     string `json:"address,omitempty"`
	State       string `json:"state,omitempty"`
}

func newSnapshotJSON(s *lockwatch.Snapshot) snapshotJSON {
	j := snapshotJSON{At: s.At, Holders: []holderJSON{}, Waiters: []waiterJSON{}, Cycles: []string{}, Tables: tablesOf(s)}
	for _, h := range s.Holders {
		if h.SecretCheck {
			continue
		}
		line := holderJSON{Key: keyText(h.Key), Shared: h.Shared, processJSON: processOf(h.Process)}
		if r := h.Registration; r != nil {
			line.Session, line.Namespace, line.Name, line.Holder = numberText(r.Session), string(r.Namespace), r.Name, r.Holder
			line.Acquired, line.Heartbeat, line.Expires = known(r.Acquired), known(r.Heartbeat), known(r.Expires)
		}
		if l := h.Lease; l != nil {
			line.Session, line.Holder = numberText(l.Session), l.Holder
			line.Acquired, line.Expires = known(l.Acquired), known(l.Expires)
		}
		j.Holders = append(j.Holders, line)
	}
	for _, w := range s.Waiters {
		line := waiterJSON{Key: keyText(w.Key), Shared: w.Shared, Since: known(w.Since), processJSON: processOf(w.Process), BlockedBy: w.BlockedBy}
		if w.Poll != nil {
			line.Session, line.Callers = numberText(w.Poll.Session), w.Poll.Callers
			if w.Poll.Held != nil {
				line.Holding = keyText(*w.Poll.Held)
			}
		}
		j.Waiters = append(j.Waiters, line)
	}
	for _, c := range s.Cycles() {
		j.Cycles = append(j.Cycles, c.String())
	}
	return j
}

// tablesOf returns the states of the tables that this kind of database may have.
func tablesOf(s *lockwatch.Snapshot) map[string]tableState {
	tables := map[string]tableState{"latchkey_heartbeats": s.Heartbeats, "latchkey_waits": s.Waits, "latchkey_locks": s.Leases}
	maps.DeleteFunc(tables, func(_ string, state tableState) bool { return state == "" })
	return tables
}

// numberText returns the number of a session as a text.
func numberText(n int64) string { return strconv.FormatInt(n, 10) }

func processOf(p lockwatch.Process) processJSON {
	return processJSON{p.PID, p.Application, p.Address, p.State}
}

// known returns nil for a time that is not known.
func known(t time.Time) *time.Time {
	if t.IsZero() {
		return nil
	}
	return &t
}

// keyText returns key as the arguments of PostgreSQL's functions.
func keyText(key sqllock.Key) string {
	if class, object, isPair := key.Pair(); isPair {
		return strconv.Itoa(int(class)) + ", " + strconv.Itoa(int(object))
	}
	return strconv.FormatInt(key.Int64(), 10)
}
