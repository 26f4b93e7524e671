//go:build linux

package round

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"github.com/latchkey-go/latchkey/internal/chaos/check"
	"github.com/latchkey-go/latchkey/internal/chaos/history"
	"github.com/latchkey-go/latchkey/internal/chaos/patroni/cluster"
)

// The promise of a lock holds on one writable primary. Two things excuse locks
// of two processes that were valid at once, and each is taken from what the
// servers did:
//
//   - Two nodes accepted writes at the time, and the two processes had their
//     sessions on different nodes.
//   - The server of the earlier lock was ending its sessions, or HAProxy those
//     of a node. The lock was free a moment before the holder heard of it (the
//     fourth assumption of docs/safety.md). A holder that was cut off from that
//     server hears nothing, and its lease ends the lock.
//
// Nothing excuses two locks of one process.

// A span is a time.
type span struct{ from, to history.Moment }

// A parting is a time in which processes could not reach a node, and others
// could.
type parting struct {
	Node      string
	Processes []int
	From, To  history.Moment
}

// news is how long the end of a session may take to reach its holder. Time in
// which this process was starved comes on top.
const news = history.Moment(250 * time.Millisecond)

// unseen is how long a node may accept writes before the observer notices, and
// how late it may find that it does not any more.
const unseen = history.Moment(300 * time.Millisecond)

// near is the same for the session of a process. It is longer than unseen, for a
// process seldom changes the node, and a look at a busy node takes time.
const near = history.Moment(time.Second)

// windows are the times in which locks are excused.
type windows struct {
	writable []cluster.Writable            // by From
	clients  map[string][]cluster.Writable // by the name of a session
	split    []span                        // two nodes accepted writes
	starved  []span
	parted   []parting
	lease    history.Moment
}

func windowsOf(seen []cluster.Writable, starved ...span) *windows {
	w := &windows{clients: map[string][]cluster.Writable{}, starved: starved}
	for _, s := range slices.SortedFunc(slices.Values(seen), func(a, b cluster.Writable) int { return cmp.Compare(a.From, b.From) }) {
		if s.Client == "" {
			w.writable = append(w.writable, s)
		} else {
			w.clients[s.Client] = append(w.clients[s.Client], s)
		}
	}
	w.split = two(w.writable)
	return w
}

// two returns when two nodes accepted writes.
func two(writable []cluster.Writable) (all []span) {
	for i, a := range writable {
		for _, b := range writable[i+1:] {
			if a.Node != b.Node && b.From <= a.To {
				all = append(all, span{b.From, min(a.To, b.To)})
			}
		}
	}
	return all
}

// proxied are the processes that go through HAProxy: those of the first client.
var proxied = []int{1, 2}

// clientName is the application_name of process i, and sessionName the one that
// its Session makes of it.
func clientName(i int) string  { return fmt.Sprintf("process-%d", i) }
func sessionName(i int) string { return clientName(i) + " latchkey" }

// nodes returns where a process had its Session at m, or nearly.
func (w *windows) nodes(process int, m history.Moment) (all []string) {
	for _, s := range w.clients[sessionName(process)] {
		if m >= s.From-near && m <= s.To+near {
			all = append(all, s.Node)
		}
	}
	return all
}

// apart reports whether two processes had their Sessions on different nodes at m.
func (w *windows) apart(a, b int, m history.Moment) bool {
	others := w.nodes(b, m)
	return slices.ContainsFunc(w.nodes(a, m), func(node string) bool {
		return slices.ContainsFunc(others, func(other string) bool { return other != node })
	})
}

// inSplit reports whether two nodes accepted writes at m, or nearly.
func (w *windows) inSplit(m history.Moment) bool {
	return slices.ContainsFunc(w.split, func(s span) bool { return m >= s.from-unseen && m <= s.to+unseen })
}

// inNews reports whether a server with a Session of the process ended its
// sessions shortly before m, or will at once.
func (w *windows) inNews(process int, m history.Moment) bool {
	nodes := w.nodes(process, m)
	return slices.ContainsFunc(w.writable, func(s cluster.Writable) bool {
		return m >= s.To-unseen && m <= s.To+unseen && slices.Contains(nodes, s.Node)
	})
}

// inClosing reports whether HAProxy ended its connections to a node shortly
// before m, or will at once: those of all its processes, that of process among
// them.
func (w *windows) inClosing(process int, m history.Moment) bool {
	return slices.Contains(proxied, process) && slices.ContainsFunc(w.clients[sessionName(process)], func(s cluster.Writable) bool {
		return !slices.ContainsFunc(proxied, func(other int) bool {
			return !slices.ContainsFunc(w.clients[sessionName(other)], func(o cluster.Writable) bool {
				return o.Node == s.Node && m >= o.To-unseen && m <= o.To+unseen
			})
		})
	})
}

// heard is when the holder of a lock that its server has freed at m knows of it
// at the latest. If it is cut off from that server, it gives up four fifths of
// the lease after it heard of it last.
func (w *windows) heard(process int, m history.Moment) history.Moment {
	latest := m
	for _, p := range w.parted {
		if slices.Contains(p.Processes, process) && m >= p.From && m <= p.To && slices.Contains(w.nodes(process, m), p.Node) {
			latest = max(latest, p.From+w.lease*4/5)
		}
	}
	return latest + news
}

// excuse reports whether a and b may have been valid at once; see
// check.WithExcuse.
func (w *windows) excuse(a, b check.Grant) bool {
	first, second := a, b
	if first.Granted > second.Granted {
		first, second = second, first
	}
	known := max(first.Valid, first.Told)
	if first.Process == second.Process && first.Valid >= second.From {
		return false
	}
	for _, m := range []history.Moment{second.Granted, second.From} {
		if w.inSplit(m) && w.apart(first.Process, second.Process, m) {
			return true
		}
	}
	late := known - within(w.starved, second.Granted, known)
	ended := w.inNews(first.Process, second.Granted) || w.inClosing(first.Process, second.Granted)
	return ended && late <= w.heard(first.Process, second.Granted)
}

// changed returns the last moment at which a node ceased to accept writes in the
// time of o, or o's beginning.
func (w *windows) changed(o *Outcome) history.Moment {
	last := o.Begin
	for _, s := range w.writable {
		if s.To >= o.Begin-unseen && s.To <= o.Settled {
			last = max(last, s.To)
		}
	}
	return last
}
