package lockwatch

import (
	"encoding/json"
	"fmt"
	"strings"
	"time"

	"github.com/latchkey-go/latchkey/sqllock"
)

// A Cycle is a deadlock. Each in it waits for what the next one has, and the last
// waits for what the first one has. None of them goes on until one gives up or is
// ended. Its JSON has its text and that of each step.
//
// Polling callers are known as of their last heartbeat, so one Snapshot may show a
// Cycle that is over. If two Snapshots show it, and all its polling callers had a
// heartbeat in between, it is a deadlock.
type Cycle struct {
	Waits []Wait    // in the order of the waits; the first has the lowest PID, and then key
	Since time.Time // when the last of the waits began, by the database's clock; zero: not known

	// EndsByItself: every wait is in the server, which finds such a cycle and ends
	// one of the waits. PostgreSQL does so after deadlock_timeout (SQLSTATE 40P01).
	// MariaDB and MySQL do so at once: GET_LOCK fails with error 1213 or 3058. So a
	// Snapshot of theirs hardly ever shows one.
	EndsByItself bool
}

// A Wait is one step of a Cycle. It is the wait of a server process, or that of
// a caller of a Session. A Session holds the locks of many callers on one server
// process, so the caller is known by the lock that it holds.
type Wait struct {
	Client              // which waits, or on which Held is held
	Held   *sqllock.Key // the lock of the caller that waits; nil: the server process itself waits

	// For is the key that is waited for. It is nil for a wait for a row, a table or
	// another thing. It is nil too if the caller waits until its own server process
	// goes on; then Held is not nil.
	For *sqllock.Key

	heldLabel, forLabel label
	heartbeat           time.Time // of a polling caller; otherwise zero
}

// Cycles returns cycles of waits in s, such that each server process and each caller
// that is in a cycle is in one of them. Each is a shortest one.
//
// Waits of server processes are those of pg_blocking_pids. Callers are known if
// their Session writes heartbeats ([sqllock.WithRegistry]), and if the context of
// their call carries the lock that they hold ([sqllock.Lock.Bind]). Such a caller is
// also known while it waits in LockTx, in the same database.
//
// Cycles does not find these deadlocks:
//   - It leads through a lock of a ConnLocker or TxLocker, or a wait for one.
//   - A program waits on a second connection in a way of its own, with a statement
//     of SQL for example, or the context does not carry the lock.
//   - It leads through a lease table, or through polling callers on MySQL.
func (s *Snapshot) Cycles() []Cycle { return NewView(s).Cycles }

// String returns c in words. Keys appear by their names and processes with their
// addresses, as far as they are known: keep it out of logs.
func (c Cycle) String() string {
	text := strings.Join(c.Steps(), " -> ")
	if c.EndsByItself {
		text += " (the server ends it)"
	}
	return text
}

// Steps returns each of the Waits in words.
func (c Cycle) Steps() []string {
	steps := make([]string, len(c.Waits))
	for i, w := range c.Waits {
		steps[i] = w.String()
	}
	return steps
}

// String returns w in words, as [Cycle.String] does.
func (w Wait) String() string {
	who := w.Client.String()
	if w.Held != nil {
		who = fmt.Sprintf("the holder of %s on %v", w.heldLabel.inText(), w.Client)
	}
	switch {
	case w.For != nil:
		return who + " waits for " + w.forLabel.inText()
	case w.Held != nil:
		return who + " waits for that process"
	}
	return who + " waits for a row, a table or the like"
}

// id tells c from other cycles of the same database.
func (c Cycle) id() string {
	var b strings.Builder
	for _, w := range c.Waits {
		fmt.Fprint(&b, w.PID, w.Start)
		for _, key := range []*sqllock.Key{w.Held, w.For} {
			if key != nil {
				fmt.Fprint(&b, " ", idOf(*key))
			}
		}
		b.WriteByte('>')
	}
	return b.String()
}

// MarshalJSON returns what c is in words.
func (c Cycle) MarshalJSON() ([]byte, error) {
	since, _ := since(c.Since, c.Since)
	return json.Marshal(struct {
		Text         string     `json:"text"`
		Steps        []string   `json:"steps"`
		Since        *time.Time `json:"since,omitempty"`
		EndsByItself bool       `json:"ends_by_itself"`
	}{c.String(), c.Steps(), since, c.EndsByItself})
}

// newerThan reports whether each polling caller in c has had a heartbeat since
// old, which is the same cycle.
func (c Cycle) newerThan(old Cycle) bool {
	for i, w := range c.Waits {
		if !w.heartbeat.IsZero() && !w.heartbeat.After(old.Waits[i].heartbeat) {
			return false
		}
	}
	return true
}
