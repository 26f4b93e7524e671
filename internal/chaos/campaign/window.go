package campaign

import (
	"cmp"
	"slices"
	"sort"
	"time"

	"github.com/latchkey-go/latchkey/internal/chaos/check"
	"github.com/latchkey-go/latchkey/internal/chaos/history"
)

// A window lasts from a fault that ended a connection on the server's side
// until its victim knew.
type window struct {
	history.Fault
	known  history.Moment // when a holder was told first: no lock from before is valid then
	limit  history.Moment // until when that may take
	handed history.Moment // locks that began to be held later are on another connection
	notice history.Moment // how long the notice takes after the end of the session
	ends   history.Moment // how long the server may take to end the session
}

func newWindow(f history.Fault, limitOf, notice, ends time.Duration) window {
	limit := f.Begin + history.Moment(limitOf)
	return window{Fault: f, known: limit, limit: limit, handed: f.Begin, notice: history.Moment(notice), ends: history.Moment(ends)}
}

// each returns w as a window of its process. A server that stops ends the sessions
// of all processes, one after the other, so each has a window of its own.
func (w window) each(processes map[int]bool) (all []window) {
	if w.Process != 0 {
		return []window{w}
	}
	w.limit += max(0, w.End-w.Begin)
	w.known = w.limit
	for p := range processes {
		w.Process = p
		all = append(all, w)
	}
	return all
}

// ordered are the rows in which the server is given an order to end the session
// of one process, and may take endsWithin to carry it out.
var ordered = []int{13, 25}

// begins moves the limit of w, which is that of a notice, if the server was slow
// to end the session. The first grant of one of its keys to another process shows
// that. The call for it must have begun before the fault, for that key alone. lost
// are the locks that were lost, keys all locks by Granted, and tries the calls that
// brought them.
func (w *window) begins(lost []*check.Grant, keys map[int64][]*check.Grant, tries map[int64]*history.Try) {
	if !slices.Contains(ordered, w.Row) {
		return
	}
	shown, waited := w.Begin+w.ends, false
	for _, h := range lost {
		if h.Process != w.Process || h.Kind == history.Reader || h.From > w.Begin || h.Told < w.Begin {
			continue
		}
		all := keys[h.Key]
		next := sort.Search(len(all), func(i int) bool { return all[i].Granted >= w.Begin })
		for ; next < len(all) && all[next].Granted < shown; next++ {
			if all[next].Process != w.Process {
				t := tries[all[next].Lock]
				shown, waited = all[next].Granted, t != nil && t.Begin <= w.Begin && t.All == 0
			}
		}
	}
	if waited {
		w.limit = max(w.limit, shown+w.notice)
		w.known = w.limit
	}
}

// close finds when the victim knew: when the first holder of a lock on the
// connection was told. It is the limit if none was told by then, because the
// locks were given back without an answer.
//
// The locks of a half-open connection may have been handed on within the
// process meanwhile. There the fault lasts until the process knows.
func (w *window) close(lost []*check.Grant) {
	if w.Row == 7 && w.End > w.Begin {
		w.known = min(w.known, w.End)
		w.handed = w.known
	}
	for _, h := range lost {
		if h.Process == w.Process && w.Begin <= h.Told && h.Told <= w.known {
			w.known, w.handed = h.Told, h.Told
		}
	}
}

// holds reports whether h was held in w, on the connection that had ended, and
// was not taken for valid after w.
func (w *window) holds(h *check.Grant) bool {
	seen := max(h.From, h.Valid)
	if h.Process != w.Process || w.Begin > max(seen, h.Ended) {
		return false
	}
	if h.Valid < h.From && h.Told != 0 { // told at first sight: its holder never saw it valid
		return h.From <= w.limit
	}
	return h.From <= w.handed && seen <= w.known && h.Told <= w.limit
}

// excuses reports whether a lock that was held in w may overlap other, and may
// be told after other was granted.
func (w *window) excuses(other *check.Grant) bool {
	return other.Process != w.Process && other.Granted >= w.Begin
}

// An explanation has the locks that were held in such windows and were not
// taken for valid after them.
type explanation struct {
	windows []window
	claims  map[int64]*check.Grant // all locks
	keys    map[int64][]*check.Grant
	victims map[int64]*window // by lock
}

func explain(events []history.Event, p promises, lease time.Duration) *explanation {
	x := &explanation{claims: map[int64]*check.Grant{}, keys: map[int64][]*check.Grant{}, victims: map[int64]*window{}}
	tries := map[int64]*history.Try{} // by the lock that they brought
	var ended []window
	for _, e := range events {
		switch {
		case e.Hold != nil: // the last line counts
			x.claims[e.Hold.Lock] = &check.Grant{Hold: *e.Hold, Granted: e.Hold.From}
		case e.Try != nil && e.Try.Result == history.OK:
			tries[e.Try.Lock] = e.Try
		case e.Fault != nil:
			if limit := p.staleLimit(e.Fault.Row, lease); limit > 0 {
				ended = append(ended, newWindow(*e.Fault, limit, p.notice(lease), endsWithin+p.busy))
			}
		}
	}
	var lost []*check.Grant
	processes := map[int]bool{}
	for number, c := range x.claims {
		if t := tries[number]; t != nil {
			c.Granted = t.End
		}
		if c.Told != 0 {
			lost = append(lost, c)
		}
		x.keys[c.Key] = append(x.keys[c.Key], c)
		processes[c.Process] = true
	}
	for _, w := range ended {
		x.windows = append(x.windows, w.each(processes)...)
	}
	for _, all := range x.keys {
		slices.SortFunc(all, func(a, b *check.Grant) int { return cmp.Compare(a.Granted, b.Granted) })
	}
	for i := range x.windows {
		x.windows[i].begins(lost, x.keys, tries)
		x.windows[i].close(lost)
	}
	for number, c := range x.claims {
		if i := slices.IndexFunc(x.windows, func(w window) bool { return w.holds(c) }); i >= 0 {
			x.victims[number] = &x.windows[i]
		}
	}
	return x
}

// excuse reports whether a and b may have been valid at once; see
// check.WithExcuse.
func (x *explanation) excuse(a, b check.Grant) bool {
	v, w := x.victims[a.Lock], x.victims[b.Lock]
	return v != nil && v.excuses(&b) || w != nil && w.excuses(&a)
}
