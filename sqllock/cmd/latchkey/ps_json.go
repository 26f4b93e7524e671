package main

import (
	"strconv"
	"time"

	"github.com/latchkey-go/latchkey/sqllock"
	"github.com/latchkey-go/latchkey/sqllock/lockwatch"
)

// The form of latchkey ps --json. A field that is not known is left out. Keys
// are texts, because many readers of JSON round numbers of 64 bits.

type snapshotJSON struct {
	At      time.Time    `json:"at"`
	Holders []holderJSON `json:"holders"`
	Waiters []waiterJSON `json:"waiters"`
	Cycles  []string     `json:"cycles"`
}

type holderJSON struct {
	Key    string `json:"key"` // as the arguments of pg_advisory_lock
	Shared bool   `json:"shared,omitempty"`
	processJSON
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
	BlockedBy []int `json:"blocked_by,omitempty"`
	Callers   int   `json:"callers,omitempty"` // of a Session that polls
}

type processJSON struct {
	PID         int    `json:"pid,omitempty"`
	Application string `json:"application,omitempty"`
	Address     string `json:"address,omitempty"`
	State       string `json:"state,omitempty"`
}

func newSnapshotJSON(s *lockwatch.Snapshot) snapshotJSON {
	j := snapshotJSON{At: s.At, Holders: []holderJSON{}, Waiters: []waiterJSON{}, Cycles: []string{}}
	for _, h := range s.Holders {
		if h.SecretCheck {
			continue
		}
		line := holderJSON{Key: keyText(h.Key), Shared: h.Shared, processJSON: processOf(h.Process)}
		if r := h.Registration; r != nil {
			line.Namespace, line.Name, line.Holder = string(r.Namespace), r.Name, r.Holder
			line.Acquired, line.Heartbeat, line.Expires = known(r.Acquired), known(r.Heartbeat), known(r.Expires)
		}
		if l := h.Lease; l != nil {
			line.Holder, line.Acquired, line.Expires = l.Holder, known(l.Acquired), known(l.Expires)
		}
		j.Holders = append(j.Holders, line)
	}
	for _, w := range s.Waiters {
		line := waiterJSON{Key: keyText(w.Key), Shared: w.Shared, Since: known(w.Since), processJSON: processOf(w.Process), BlockedBy: w.BlockedBy}
		if w.Poll != nil {
			line.Callers = w.Poll.Callers
		}
		j.Waiters = append(j.Waiters, line)
	}
	for _, c := range s.Cycles() {
		j.Cycles = append(j.Cycles, c.String())
	}
	return j
}

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
