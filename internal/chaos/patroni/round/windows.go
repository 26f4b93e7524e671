//go:build linux

package round

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/latchkey-go/latchkey/internal/chaos/check"
	"github.com/latchkey-go/latchkey/internal/chaos/history"
	"github.com/latchkey-go/latchkey/internal/chaos/patroni/cluster"
	"github.com/latchkey-go/latchkey/internal/dialect"
)

// The promise of a lock holds on one writable primary. Two things excuse locks
// of two processes that were valid at once, and each is taken from what the
// servers did:
//
//   - Two nodes accepted writes at the time, and each of them granted one of the
//     locks.
//   - The server of the earlier lock was ending its sessions, or HAProxy those
//     of a node. The lock was free a moment before the holder heard of it (the
//     fourth assumption of docs/safety.md).
//
// A holder must know of the end of its session all the same, and soon. One that is
// cut off from its server hears nothing, and its lease ends the lock. Nothing
// excuses two locks of one process.

// A span is a time.
type span struct{ From, To history.Moment }

// An isolation is a time in which processes could not reach a node.
type isolation struct {
	Node      string
	Processes []int
	span
}

// news is how long something that a server did may take to reach a process. Time
// in which this process was starved comes on top.
const news = history.Moment(250 * time.Millisecond)

// straggle is how much longer than the observer's session others may live on a
// server that ends them.
const straggle = history.Moment(50 * time.Millisecond)

// windows are the times in which locks are excused.
type windows struct {
	servers  []cluster.Writable            // times in which a node accepted writes, by From
	sessions map[string][]cluster.Writable // by name
	starved  []span
	isolated []isolation
	lease    history.Moment

	split  []span            // two nodes accepted writes
	byNews map[[2]int64]bool // pairs of locks that the news excused
}

func windowsOf(seen []cluster.Writable, starved ...span) *windows {
	w := &windows{sessions: map[string][]cluster.Writable{}, starved: starved, byNews: map[[2]int64]bool{}}
	for _, s := range slices.SortedFunc(slices.Values(seen), func(a, b cluster.Writable) int { return cmp.Compare(a.From, b.From) }) {
		if s.Client == "" {
			w.servers = append(w.servers, s)
		} else {
			w.sessions[s.Client] = append(w.sessions[s.Client], s)
		}
	}
	for client, all := range w.sessions {
		w.sessions[client] = slices.DeleteFunc(slices.Clone(all), func(s cluster.Writable) bool { return hasLost(s, all) })
	}
	for i, a := range w.servers {
		for _, b := range w.servers[i+1:] {
			if from, to := max(a.From, b.From), min(a.To, b.To); a.Node != b.Node && from <= to {
				w.split = append(w.split, span{from, to})
			}
		}
	}
	return w
}

// hasLost reports whether s grants nothing. A process may make several attempts to
// connect at once. The session of one that loses begins soon after that of the one
// that wins, and ends before it, on the same node.
func hasLost(s cluster.Writable, all []cluster.Writable) bool {
	return slices.ContainsFunc(all, func(winner cluster.Writable) bool {
		return winner.Node == s.Node && winner.From <= s.Before && s.Until() <= winner.To &&
			s.Before <= winner.From+history.Moment(dialect.ConnectTimeout)
	})
}

// proxied are the processes that go through HAProxy: those of the first client.
var proxied = []int{1, 2}

// clientName is the application_name of process i, and sessionName the one that
// its Session makes of it.
func clientName(i int) string  { return fmt.Sprintf("process-%d", i) }
func sessionName(i int) string { return clientName(i) + " latchkey" }

// sessionsOf returns the sessions that may have granted g. A process opens
// another session when it has given up the one before.
func (w *windows) sessionsOf(g check.Grant) (all []cluster.Writable) {
	sessions := w.sessions[sessionName(g.Process)]
	for _, s := range sessions {
		succeeded := slices.ContainsFunc(sessions, func(later cluster.Writable) bool {
			return s.From <= later.Before && later.From <= g.Requested
		})
		if !succeeded && w.inTimeOf(s, g) {
			all = append(all, s)
		}
	}
	return all
}

// inTimeOf reports whether s, a server or a session, was there when g may have
// been granted, or straggled then. Time in which the machine starved processes
// does not count.
func (w *windows) inTimeOf(s cluster.Writable, g check.Grant) bool {
	requested := g.Requested - within(w.starved, s.Until(), g.Requested)
	return g.Granted >= s.Before && requested <= s.Until()+straggle && w.soon(s.Until(), g.Granted)
}

// soon reports whether m was no later than what happens at once after end.
func (w *windows) soon(end, m history.Moment) bool {
	return m-within(w.starved, end, m) <= end+news
}

// by returns the sessions on server that may have granted g.
func (w *windows) by(server cluster.Writable, g check.Grant) (all []cluster.Writable) {
	if !w.inTimeOf(server, g) {
		return nil
	}
	return slices.DeleteFunc(w.sessionsOf(g), func(s cluster.Writable) bool {
		return s.Node != server.Node || s.Before > server.Until() || server.Before > s.Until()
	})
}

// inSplit reports whether two nodes may have accepted writes when second was
// granted, of which one granted it and the other one first. The holders knew in
// time what they could know.
func (w *windows) inSplit(first, second check.Grant) bool {
	knew := func(server cluster.Writable, g check.Grant) bool { return w.knewOf(w.by(server, g), g) }
	for i, a := range w.servers {
		for _, b := range w.servers[i+1:] {
			both := cluster.Writable{Before: max(a.Before, b.Before), Gone: min(a.Until(), b.Until())}
			if a.Node == b.Node || both.Before > both.Gone || !w.inTimeOf(both, second) {
				continue
			}
			if knew(a, first) && knew(b, second) || knew(b, first) && knew(a, second) {
				return true
			}
		}
	}
	return false
}

// knew reports whether the holder of a lock went on for no longer than it may. Its
// lock ended with s, its session, or at m if that was later. Cut off before its
// session ended, it gives up four fifths of the lease after the cut. After a shorter
// cut it may go on, and knows by then what happened meanwhile.
func (w *windows) knew(lock check.Grant, s cluster.Writable, m history.Moment) bool {
	told := max(m, s.Until())
	limit, given := told, cluster.Never
	for _, i := range w.isolated {
		if i.Node != s.Node || !slices.Contains(i.Processes, lock.Process) || lock.Granted > i.To || i.From > s.Until()+straggle {
			continue
		}
		switch over := i.From + w.lease*4/5; {
		case over <= i.To:
			given = min(given, over)
		case max(m, s.To) <= i.To:
			limit = max(limit, over)
		}
	}
	if given != cluster.Never {
		limit = given
	}
	return w.soon(limit, max(lock.Valid, lock.Told))
}

// ends reports whether s ended shortly before g was granted, or at once after it.
func (w *windows) ends(s cluster.Writable, g check.Grant) bool {
	return g.Granted >= s.To-news && w.soon(s.Gone, g.Granted)
}

// closedBy reports whether HAProxy ended its connections to the node of s, a
// session of process, when g was granted: those of all its processes. It cannot do
// so for a node that it does not reach.
func (w *windows) closedBy(s cluster.Writable, process int, g check.Grant) bool {
	if !slices.Contains(proxied, process) || !w.ends(s, g) || w.cutOff(s.Node, process, g.Granted) {
		return false
	}
	for _, p := range proxied {
		ended, goesOn := false, false
		for _, o := range w.sessions[sessionName(p)] {
			if o.Node == s.Node {
				ended = ended || w.ends(o, g)
				goesOn = goesOn || o.From <= s.To && o.To > g.Granted+news
			}
		}
		if !ended || goesOn {
			return false
		}
	}
	return true
}

// cutOff reports whether process could not reach node at m.
func (w *windows) cutOff(node string, process int, m history.Moment) bool {
	return slices.ContainsFunc(w.isolated, func(i isolation) bool {
		return i.Node == node && slices.Contains(i.Processes, process) && m >= i.From && m <= i.To
	})
}

// inNews reports whether first's lock ended on its server around the time when
// second was granted, and its holder knew of it in time. A server's sessions end
// one after the other. So it may grant the key of a holder that is cut off to a
// process on its side, and only that is excused.
func (w *windows) inNews(first, second check.Grant) bool {
	m := second.Granted
	for _, server := range w.servers {
		if !w.ends(server, second) {
			continue
		}
		onItsSide := w.knewOf(w.by(server, second), second) && !w.cutOff(server.Node, second.Process, m)
		if !onItsSide && w.cutOff(server.Node, first.Process, m) {
			continue
		}
		if slices.ContainsFunc(w.by(server, first), func(s cluster.Writable) bool {
			return w.soon(s.Until(), m) && w.knew(first, s, m)
		}) {
			return true
		}
	}
	return slices.ContainsFunc(w.sessionsOf(first), func(s cluster.Writable) bool {
		return w.closedBy(s, first.Process, second) && w.knew(first, s, m)
	})
}

// knewOf reports whether the holder of g knew in time of the end of one of
// sessions.
func (w *windows) knewOf(sessions []cluster.Writable, g check.Grant) bool {
	return slices.ContainsFunc(sessions, func(s cluster.Writable) bool { return w.knew(g, s, 0) })
}

// excuse reports whether a and b may have been valid at once; see
// check.Facts.
func (w *windows) excuse(a, b check.Grant) bool {
	first, second := a, b
	if first.Granted > second.Granted {
		first, second = second, first
	}
	if first.Process == second.Process {
		return false
	}
	orders := [][2]check.Grant{{first, second}}
	if second.Requested <= first.Granted { // the server may have granted them in the other order
		orders = append(orders, [2]check.Grant{second, first})
	}
	for _, o := range orders {
		if w.inSplit(o[0], o[1]) {
			return true
		}
	}
	for _, o := range orders {
		sessions := w.sessionsOf(o[1])
		short := len(sessions) == 0 && w.soon(o[1].Granted, max(o[1].Valid, o[1].Told)) // and its session, too
		if w.inNews(o[0], o[1]) && (short || w.knewOf(sessions, o[1])) {
			w.byNews[[2]int64{a.Lock, b.Lock}] = true
			return true
		}
	}
	return false
}

// divided reports whether two nodes accepted writes at once in the time of o.
func (w *windows) divided(o *Outcome) bool {
	return slices.ContainsFunc(w.split, func(s span) bool { return s.From <= o.Settled && s.To >= o.Begin })
}

// blind is the longest time in which a server or a session may have begun or
// ended without being seen.
func (w *windows) blind() (longest history.Moment) {
	all := slices.Concat(slices.Collect(maps.Values(w.sessions))...)
	for _, s := range append(all, w.servers...) {
		if s.Before != 0 {
			longest = max(longest, s.From-s.Before)
		}
		if s.Gone != 0 {
			longest = max(longest, s.Gone-s.To)
		}
	}
	return longest
}

// changed returns the last moment at which a node ceased to accept writes in the
// time of o, or o's beginning.
func (w *windows) changed(o *Outcome) history.Moment {
	last := o.Begin
	for _, s := range w.servers {
		if s.Gone != 0 && s.Gone >= o.Begin && s.To <= o.Settled {
			last = max(last, s.Gone)
		}
	}
	return last
}
