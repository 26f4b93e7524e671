package round

import (
	"cmp"
	"slices"
	"time"

	"github.com/latchkey-go/latchkey/internal/chaos/check"
	"github.com/latchkey-go/latchkey/internal/chaos/history"
	"github.com/latchkey-go/latchkey/internal/chaos/patroni/cluster"
)

// The promise of a lock holds on one writable primary. Two things excuse locks
// that were valid at once, and each is taken from what the servers did:
//
//   - Two nodes accepted writes at the time.
//   - A server was ending its sessions, and so freed the locks of one a moment
//     before its holder heard of it (the fourth assumption of docs/safety.md).

// A span is a time.
type span struct{ from, to history.Moment }

// news is how long the end of a session may take to reach its holder, on a busy
// machine.
const news = history.Moment(250 * time.Millisecond)

// unseen is how long a node may accept writes before the observer notices, and
// how late it may find that it does not any more.
const unseen = history.Moment(300 * time.Millisecond)

// Two returns when two nodes accepted writes.
func two(seen []cluster.Writable) (all []span) {
	seen = slices.SortedFunc(slices.Values(seen), func(a, b cluster.Writable) int { return cmp.Compare(a.From, b.From) })
	for i, a := range seen {
		for _, b := range seen[i+1:] {
			if a.Node != b.Node && b.From <= a.To {
				all = append(all, span{b.From, min(a.To, b.To)})
			}
		}
	}
	return all
}

// windows are the times in which locks are excused.
type windows struct {
	split []span           // two nodes accepted writes
	ends  []history.Moment // a node ceased to
}

func windowsOf(seen []cluster.Writable) *windows {
	w := &windows{split: two(seen)}
	for _, s := range seen {
		w.ends = append(w.ends, s.To)
	}
	return w
}

// inSplit reports whether two nodes accepted writes at m, or nearly.
func (w *windows) inSplit(m history.Moment) bool {
	return slices.ContainsFunc(w.split, func(s span) bool { return m >= s.from-unseen && m <= s.to+unseen })
}

// inNews reports whether a server ended its sessions shortly before m, or will
// at once.
func (w *windows) inNews(m history.Moment) bool {
	return slices.ContainsFunc(w.ends, func(end history.Moment) bool { return m >= end-unseen && m <= end+unseen })
}

// excuse reports whether a and b may have been valid at once; see
// check.WithExcuse.
func (w *windows) excuse(a, b check.Grant) bool {
	first, second := a, b
	if first.Granted > second.Granted {
		first, second = second, first
	}
	if w.inSplit(second.Granted) || w.inSplit(second.From) {
		return true
	}
	known := max(first.Valid, first.Told)
	return w.inNews(second.Granted) && known <= second.Granted+news
}
