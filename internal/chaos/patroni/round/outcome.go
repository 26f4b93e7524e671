//go:build linux

package round

import (
	"slices"
	"sort"
	"time"

	"github.com/latchkey-go/latchkey/internal/chaos/check"
	"github.com/latchkey-go/latchkey/internal/chaos/history"
	"github.com/latchkey-go/latchkey/internal/chaos/worker"
)

// A Result is what a round has found.
type Result struct {
	Server     string // versions, and the number of processors
	Outcomes   []Outcome
	Operations int      // calls
	Contended  int      // of them, those that another process' call for the key overlapped
	Stored     int      // fenced writes in the database
	Fenced     int      // writes that the fence refused
	Violations []string // what was promised and did not hold
	Kept       string   // directory of the histories; empty: all was well

	// Stuck is why the cluster did not become whole, or the round had no regular end;
	// empty if it had. Not all of it was looked at then, so none of its faults counts.
	Stuck string
}

// An Outcome is what one fault has done, or several of a kind.
type Outcome struct {
	Row            int
	Begin, Settled history.Moment  // Settled: each process served and the cluster was whole
	Lost           int             // locks
	Told           []time.Duration // from Begin until the holders of those held then were told
	Served         []time.Duration // from Begin until a process that was interrupted was granted locks again
	Spared         int             // processes that were not interrupted
	Two            []time.Duration // for which two nodes accepted writes
	Excused        []time.Duration // for which two locks of a key overlapped, with an excuse
	Missing        int             // writes that were acknowledged and are not stored
	Refused        int             // holders of an old primary that the fence of the new one refused
	Reinitialized  int             // standbys that Patroni did not rewind by itself
}

// Add adds p to o.
func (o *Outcome) Add(p Outcome) {
	o.Lost += p.Lost
	o.Told, o.Served = append(o.Told, p.Told...), append(o.Served, p.Served...)
	o.Spared += p.Spared
	o.Two, o.Excused = append(o.Two, p.Two...), append(o.Excused, p.Excused...)
	o.Missing += p.Missing
	o.Refused += p.Refused
	o.Reinitialized += p.Reinitialized
}

// at returns the outcome that has begun last by m; nil before the first.
func at(all []Outcome, m history.Moment) *Outcome {
	i := sort.Search(len(all), func(i int) bool { return all[i].Begin > m })
	if i == 0 {
		return nil
	}
	return &all[i-1]
}

// measure adds to each outcome what the history says of it: which locks were
// lost, and for how long processes were granted none.
func measure(all []Outcome, events []history.Event) {
	holds := map[int64]history.Hold{} // of each lock the last line
	grants, refused := map[int][]history.Moment{}, map[int][]history.Moment{}
	for _, e := range events {
		switch {
		case e.Hold != nil:
			holds[e.Hold.Lock] = *e.Hold
		case e.Try != nil && e.Try.Result == history.OK:
			grants[e.Try.Process] = append(grants[e.Try.Process], e.Try.End)
		case e.Try != nil && e.Try.Result == history.Unavailable:
			refused[e.Try.Process] = append(refused[e.Try.Process], e.Try.End)
		}
	}
	for _, h := range holds {
		o := at(all, h.Told)
		if h.Told == 0 || o == nil {
			continue
		}
		o.Lost++
		if h.From <= o.Begin {
			o.Told = append(o.Told, time.Duration(h.Told-o.Begin))
		}
	}
	for process, moments := range grants {
		slices.Sort(moments)
		slices.Sort(refused[process])
		for i := range all {
			all[i].served(moments, refused[process])
		}
	}
}

// A pause between two grants of a process counts as an interruption in two cases.
// It is as long as interruption, and a call found the database unavailable. Or it
// is as long as silence: other processes may hold all keys for a while.
const (
	interruption = history.Moment(500 * time.Millisecond)
	silence      = history.Moment(2 * time.Second)
)

// served adds a process that was granted locks at moments, and that found the
// database unavailable at refused, both in order. What counts is the end of its
// longest interruption between the beginning of the fault and its end.
func (o *Outcome) served(moments, refused []history.Moment) {
	last, end, longest := o.Begin, history.Moment(0), history.Moment(0)
	for _, m := range moments {
		if m <= o.Begin || m > o.Settled { // by then each process had been granted one
			continue
		}
		next, _ := slices.BinarySearch(refused, last)
		unavailable := next < len(refused) && refused[next] < m
		if pause := m - last; pause > longest && (pause >= silence || pause >= interruption && unavailable) {
			longest, end = pause, m
		}
		last = m
	}
	if longest == 0 {
		o.Spared++
		return
	}
	o.Served = append(o.Served, time.Duration(end-o.Begin))
}

// missing finds the writes that were acknowledged and are not stored, and adds
// each to the fault that may have lost it. It returns the history with these
// writes as of unknown result, and those that no fault accounts for.
func missing(all []Outcome, events []history.Event, rows []check.Stored, synchronous bool, seen *evidence) (without []history.Event, lost []history.Write) {
	stored := map[int64]bool{}
	for _, row := range rows {
		stored[row.Number] = true
	}
	for _, e := range events {
		if e.Write != nil && e.Write.Result == history.OK && !stored[e.Write.Number] {
			write := *e.Write
			if o := loser(all, write, seen); o == nil || synchronous && !cancelled(write) {
				lost = append(lost, write)
			} else {
				o.Missing++
			}
			write.Result = history.Failed
			e.Write = &write
		}
		without = append(without, e)
	}
	return without, lost
}

// cancelled reports whether the acknowledgement came when the context of the
// write had ended, by way of lib/pq. That cancels a COMMIT which waits for a
// standby, and PostgreSQL then acknowledges (see TestCancelledCommit).
func cancelled(w history.Write) bool {
	return w.End-w.Begin >= history.Moment(worker.WriteTimeout) && driver(w.Process) == "postgres"
}

// behind is how late replication may be: a commit so long before a fault may be
// lost to it.
const behind = history.Moment(2 * time.Second)

// loser returns the fault that may have lost a commit; nil if there is none. It
// is of a kind that loses commits, or two nodes accepted writes in its time. The
// commit was requested before the last node that stepped down then was seen to
// accept no writes.
func loser(all []Outcome, write history.Write, seen *evidence) *Outcome {
	for i := range all {
		o := &all[i]
		changed := o.Begin
		for _, s := range seen.Servers {
			if s.Gone >= o.Begin && s.To <= o.Settled {
				changed = max(changed, s.Gone)
			}
		}
		divided := slices.ContainsFunc(seen.split(), func(s span) bool { return s.From <= o.Settled && s.To >= o.Begin })
		if (kindOf(o.Row).Loses || divided) && write.End >= o.Begin-behind && write.Begin <= changed {
			return o
		}
	}
	return nil
}
