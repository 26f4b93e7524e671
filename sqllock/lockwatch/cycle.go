package lockwatch

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/latchkey-go/latchkey/sqllock"
)

// A Cycle is a deadlock. Each in it waits for what the next one has, and the last
// waits for what the first one has. None of them goes on until one gives up or is
// ended. Its JSON has its text and that of each step.
type Cycle struct {
	Waits []Wait    // in the order of the waits; the first has the lowest PID, and then key
	Since time.Time // when the last of the waits began, by the database's clock; zero: not known

	// Certain: it is known who waits in each step. If it is false, the polling
	// callers of the last step may hold another lock of their Session, or none.
	//
	// Polling callers are known as of their last heartbeat, so one Snapshot may
	// show a Cycle that is over. If two Snapshots show it, and all its polling
	// callers had a heartbeat in between, it is a deadlock.
	Certain bool

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
// that is in a cycle is in one of them. Each is a shortest one. Certain cycles come
// first.
//
// Waits of server processes are those of pg_blocking_pids. Callers are known if
// their Session writes heartbeats ([sqllock.WithRegistry]). A caller that holds a
// lock of such a Session is also known while it waits on another connection: at a
// ConnLocker, at a TxLocker or in LockTx. So is the holder of a ConnLocker's or
// TxLocker's lock while it waits for the Session. In each case the context of the
// call must carry the lock ([sqllock.Lock.Bind]), and both must be in one database.
//
// Cycles does not find these deadlocks:
//   - All locks in it are of ConnLockers and TxLockers.
//   - A program waits on a second connection in a way of its own, with a statement
//     of SQL for example, or the context does not carry the lock.
//   - It leads through a lease table, or through polling callers on MySQL.
func (s *Snapshot) Cycles() []Cycle { return NewView(s).Cycles }

// String returns c in words. Keys appear by their names and processes with their
// addresses, as far as they are known: keep it out of logs.
func (c Cycle) String() string {
	text := strings.Join(c.Steps(), " -> ")
	switch {
	case !c.Certain:
		return text + " (possible)"
	case c.EndsByItself:
		return text + " (the server ends it)"
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
	return fmt.Sprint(b.String(), c.Certain)
}

// MarshalJSON returns what c is in words.
func (c Cycle) MarshalJSON() ([]byte, error) {
	since, _ := since(c.Since, c.Since)
	return json.Marshal(struct {
		Text         string     `json:"text"`
		Steps        []string   `json:"steps"`
		Since        *time.Time `json:"since,omitempty"`
		Certain      bool       `json:"certain"`
		EndsByItself bool       `json:"ends_by_itself"`
	}{c.String(), c.Steps(), since, c.Certain, c.EndsByItself})
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

// cycles returns the cycles of g.
func (g *waitGraph) cycles() []Cycle {
	g.prune()
	var certain, possible [][]step
	alive := func(n *node) bool { return n.alive }
	for _, n := range g.nodes {
		if !n.alive || n.certain {
			continue
		}
		path := g.shortest(n, alive, func(to *node) bool { return to == n })
		for _, s := range path {
			s.from.certain = true
		}
		certain = add(certain, path)
	}
	for _, w := range g.view.waiters {
		if w.Poll == nil || w.Poll.Held != nil {
			continue
		}
		holders, _ := g.view.blockers(w)
		for _, h := range holders {
			possible = add(possible, g.possible(w, g.byParty[g.partyOf(h)]))
		}
	}
	all := []Cycle{}
	for _, steps := range append(inOrder(certain), inOrder(possible)...) {
		all = append(all, g.cycle(steps, len(all) < len(certain)))
		for _, s := range steps {
			if n := s.from; n.cycle == 0 {
				n.cycle, n.guessed = len(all), len(all) > len(certain)
				n.waits = slices.Insert(slices.DeleteFunc(n.waits, func(e edge) bool { return e.to == s.to }), 0, s.edge)
			}
		}
	}
	return all
}

// possible returns the cycle that exists if the polling callers of w, which wait for
// the node from, hold one of the locks of their Session. A cycle has at most one such
// guess: with two guesses it would say nothing. It is nil if all its nodes are in
// certain cycles.
func (g *waitGraph) possible(w *Waiter, from *node) []step {
	any := func(*node) bool { return true }
	path := g.shortest(from, any, func(to *node) bool { return to != from && to.held && to.of == w.Poll.Session })
	if path == nil {
		return nil
	}
	path = append(path, step{path[len(path)-1].to, edge{from, w}})
	if !slices.ContainsFunc(path, func(s step) bool { return !s.from.certain }) {
		return nil
	}
	return path
}

// add adds a cycle to others, from its least node on, unless it is nil or there.
func add(cycles [][]step, steps []step) [][]step {
	if steps == nil {
		return cycles
	}
	least := 0
	for i, s := range steps {
		if compareParties(s.from.party, steps[least].from.party) < 0 {
			least = i
		}
	}
	steps = slices.Concat(steps[least:], steps[:least])
	if slices.ContainsFunc(cycles, func(other []step) bool { return compareSteps(steps, other) == 0 }) {
		return cycles
	}
	return append(cycles, steps)
}

func compareSteps(a, b []step) int {
	return slices.CompareFunc(a, b, func(x, y step) int { return compareParties(x.from.party, y.from.party) })
}

func inOrder(cycles [][]step) [][]step {
	slices.SortStableFunc(cycles, compareSteps)
	return cycles
}

// cycle returns steps as a Cycle.
func (g *waitGraph) cycle(steps []step, certain bool) Cycle {
	c := Cycle{Certain: certain, EndsByItself: certain}
	for _, s := range steps {
		w, since := Wait{Client: s.from.client}, g.view.processes[s.from.pid].StateSince
		if s.from.held {
			w.Held, w.heldLabel, since = &s.from.key, g.view.label(s.from.key), time.Time{}
		}
		if s.wait != nil {
			w.For, w.forLabel, since = &s.wait.Key, g.view.label(s.wait.Key), s.wait.Since
		}
		if !s.inServer() {
			w.heartbeat = s.wait.Poll.Heartbeat
		}
		if since.After(c.Since) {
			c.Since = since
		}
		c.Waits = append(c.Waits, w)
		c.EndsByItself = c.EndsByItself && s.inServer()
	}
	return c
}
