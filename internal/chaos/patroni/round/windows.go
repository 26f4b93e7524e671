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
//   - Two nodes accepted writes at the time, and each of them granted one of the
//     locks.
//   - The server of the earlier lock was ending its sessions, or HAProxy those
//     of a node. The lock was free a moment before the holder heard of it (the
//     fourth assumption of docs/safety.md). A holder that was cut off from that
//     server hears nothing, and its lease ends the lock.
//
// Nothing excuses two locks of one process.

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

// windows are the times in which locks are excused.
type windows struct {
	servers  []cluster.Writable            // times in which a node accepted writes, by From
	sessions map[string][]cluster.Writable // by name
	starved  []span
	isolated []isolation
	lease    history.Moment

	split []span            // two nodes accepted writes
	late  map[[2]int64]bool // pairs of locks that the news excused
}

func windowsOf(seen []cluster.Writable, starved ...span) *windows {
	w := &windows{sessions: map[string][]cluster.Writable{}, starved: starved, late: map[[2]int64]bool{}}
	for _, s := range slices.SortedFunc(slices.Values(seen), func(a, b cluster.Writable) int { return cmp.Compare(a.From, b.From) }) {
		if s.Client == "" {
			w.servers = append(w.servers, s)
		} else {
			w.sessions[s.Client] = append(w.sessions[s.Client], s)
		}
	}
	for i, a := range w.servers {
		for _, b := range w.servers[i+1:] {
			if a.Node != b.Node && b.From <= a.To {
				w.split = append(w.split, span{b.From, min(a.To, b.To)})
			}
		}
	}
	return w
}

// proxied are the processes that go through HAProxy: those of the first client.
var proxied = []int{1, 2}

// clientName is the application_name of process i, and sessionName the one that
// its Session makes of it.
func clientName(i int) string  { return fmt.Sprintf("process-%d", i) }
func sessionName(i int) string { return clientName(i) + " latchkey" }

// sessionsAt returns the sessions that may have granted a lock to a process at m.
// A process opens another session when it has given up the one before.
func (w *windows) sessionsAt(process int, m history.Moment) (all []cluster.Writable) {
	for _, s := range w.sessions[sessionName(process)] {
		if m < s.Before || m > s.Until()+news {
			continue
		}
		if s.From <= m {
			all = all[:0] // s was there already, and those before it are older
		}
		all = append(all, s)
	}
	return all
}

// on reports whether a process may have been granted a lock by node at m.
func (w *windows) on(node string, process int, m history.Moment) bool {
	return slices.ContainsFunc(w.sessionsAt(process, m), func(s cluster.Writable) bool { return s.Node == node })
}

// inSplit reports whether two nodes accepted writes when second was granted, and
// one granted it and the other one first.
func (w *windows) inSplit(first, second check.Grant) bool {
	m := second.Granted
	for i, a := range w.servers {
		for _, b := range w.servers[i+1:] {
			both := a.Node != b.Node && b.From <= a.To
			if !both || m < max(a.Before, b.Before) || m > min(a.Until(), b.Until())+news {
				continue
			}
			for _, nodes := range [][2]string{{a.Node, b.Node}, {b.Node, a.Node}} {
				if w.on(nodes[0], first.Process, first.Granted) && w.on(nodes[1], second.Process, m) {
					return true
				}
			}
		}
	}
	return false
}

// ends reports whether s ended shortly before m, or will at once.
func ends(s cluster.Writable, m history.Moment) bool { return m >= s.To-news && m <= s.Until()+news }

// endedBy reports whether the server of s ended its sessions around m.
func (w *windows) endedBy(s cluster.Writable, m history.Moment) bool {
	return slices.ContainsFunc(w.servers, func(server cluster.Writable) bool { return server.Node == s.Node && ends(server, m) })
}

// closedBy reports whether HAProxy ended its connections to the node of s around
// m: those of all its processes. It cannot do so for a node that it does not reach.
func (w *windows) closedBy(s cluster.Writable, process int, m history.Moment) bool {
	if !slices.Contains(proxied, process) || w.isolation(s.Node, process, m) != nil {
		return false
	}
	for _, p := range proxied {
		if !slices.ContainsFunc(w.sessions[sessionName(p)], func(o cluster.Writable) bool { return o.Node == s.Node && ends(o, m) }) {
			return false
		}
	}
	return true
}

// isolation returns that of process from node at m; nil if there is none.
func (w *windows) isolation(node string, process int, m history.Moment) *isolation {
	i := slices.IndexFunc(w.isolated, func(i isolation) bool {
		return i.Node == node && slices.Contains(i.Processes, process) && m >= i.From && m <= i.To
	})
	if i < 0 {
		return nil
	}
	return &w.isolated[i]
}

// inNews reports whether first's lock ended on its server around the time when
// second was granted, and its holder knew of it in time.
func (w *windows) inNews(first, second check.Grant) bool {
	m := second.Granted
	known := max(first.Valid, first.Told)
	known -= within(w.starved, m, known)
	for _, s := range w.sessionsAt(first.Process, first.Granted) {
		if !w.endedBy(s, m) && !w.closedBy(s, first.Process, m) {
			continue
		}
		heard := m
		// A holder that is cut off gives up four fifths of the lease after it heard
		// of its server last. The server may grant its key to others meanwhile, as its
		// sessions end one after the other.
		if i := w.isolation(s.Node, first.Process, m); i != nil && w.on(s.Node, second.Process, m) && w.isolation(s.Node, second.Process, m) == nil {
			heard = max(heard, i.From+w.lease*4/5)
		}
		if known <= heard+news {
			return true
		}
	}
	return false
}

// excuse reports whether a and b may have been valid at once; see
// check.WithExcuse.
func (w *windows) excuse(a, b check.Grant) bool {
	first, second := a, b
	if first.Granted > second.Granted {
		first, second = second, first
	}
	switch {
	case first.Process == second.Process:
		return false
	case w.inSplit(first, second):
		return true
	case w.inNews(first, second):
		w.late[[2]int64{a.Lock, b.Lock}] = true
		return true
	}
	return false
}

// changed returns the last moment at which a node ceased to accept writes in the
// time of o, or o's beginning.
func (w *windows) changed(o *Outcome) history.Moment {
	last := o.Begin
	for _, s := range w.servers {
		if s.Gone >= o.Begin && s.To <= o.Settled {
			last = max(last, s.Gone)
		}
	}
	return last
}
