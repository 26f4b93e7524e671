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

// A pause between two grants of a process counts as an interruption in two cases.
// It is as long as interruption, and a call found the database unavailable. Or it
// is as long as silence. Undisturbed, a process is granted several locks in a
// tenth of a second. On a busy machine other processes may hold all of its keys
// for most of a second.
const (
	interruption = history.Moment(500 * time.Millisecond)
	silence      = history.Moment(2 * time.Second)
)

// behind is how late replication may be: a commit so long before a fault may be
// lost to it.
const behind = history.Moment(2 * time.Second)

// at returns the outcome that has begun last by m; nil before the first.
func at(all []Outcome, m history.Moment) *Outcome {
	i := sort.Search(len(all), func(i int) bool { return all[i].Begin > m })
	if i == 0 {
		return nil
	}
	return &all[i-1]
}

// measure adds to each outcome what the history says of it.
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
		if h.Told == 0 {
			continue
		}
		o := at(all, h.Told)
		if o == nil {
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
	for i := range all {
		slices.Sort(all[i].Told)
		slices.Sort(all[i].Served)
	}
}

// served adds a process that was granted locks at moments, and that found the
// database unavailable at refused, both in order. What counts is the end of its
// longest interruption between the beginning of the fault and its end.
func (o *Outcome) served(moments, refused []history.Moment) {
	last, end, longest := o.Begin, history.Moment(0), history.Moment(0)
	for _, m := range moments {
		if m <= o.Begin {
			continue
		}
		if m > o.Settled { // by then each process had been granted one
			break
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

// overlaps adds the overlaps of a report, and for how long there were two
// primaries.
func overlaps(all []Outcome, r *check.Report, w *windows) {
	for _, v := range r.Overlaps {
		if o := at(all, v.From); o != nil {
			o.Overlaps++
			o.Longest = max(o.Longest, time.Duration(v.To-v.From))
		}
	}
	for _, v := range r.Excused {
		o := at(all, v.From)
		switch {
		case o == nil:
		case w.byNews[[2]int64{v.First, v.Second}]:
			o.News++
		default:
			o.Excused++
			o.Longest = max(o.Longest, time.Duration(v.To-v.From))
		}
	}
	for _, s := range w.split {
		if o := at(all, s.From); o != nil {
			o.Two = append(o.Two, time.Duration(s.To-s.From))
		}
	}
}

// missing finds the writes that were acknowledged and are not stored, and adds
// each to the fault that may have lost it. It returns the history with these
// writes as of unknown result, and those that no fault accounts for.
func missing(all []Outcome, events []history.Event, rows []check.Stored, synchronous bool, w *windows) (without []history.Event, lost []history.Write) {
	stored := map[int64]bool{}
	for _, row := range rows {
		stored[row.Number] = true
	}
	for _, e := range events {
		if e.Write != nil && e.Write.Result == history.OK && !stored[e.Write.Number] {
			write := *e.Write
			switch o := loser(all, write, w); {
			case o != nil && synchronous && cancelled(write):
				o.Cancelled++
			case o != nil && !synchronous && write.Process == minorityProcess: // see Minority
			case o != nil && !synchronous:
				o.Missing++
			default:
				lost = append(lost, write)
			}
			write.Result = history.Failed
			e.Write = &write
		}
		without = append(without, e)
	}
	return without, lost
}

// cancelled reports whether the acknowledgement came when the context of the
// write had ended, by way of lib/pq. That asks the server to cancel the COMMIT
// then. A server that waits for a standby ends the wait, and acknowledges (see
// TestCancelledCommit).
func cancelled(w history.Write) bool {
	return w.End-w.Begin >= history.Moment(worker.WriteTimeout) && w.Process != minorityProcess && driver(w.Process) == "postgres"
}

// loser returns the fault that may have lost a commit; nil if there is none. A
// fault of a kind that loses commits may lose those of the primaries that ended
// in its time. So may one that has made two primaries, as any may where a Patroni
// gets no processor. The commits are requested before the last of these primaries
// has ceased to accept writes. A network that was cut may deliver the answer later.
func loser(all []Outcome, write history.Write, w *windows) *Outcome {
	for i := range all {
		o := &all[i]
		if (kindOf(o.Row).Loses || w.divided(o)) && write.End >= o.Begin-behind && write.Begin <= w.changed(o) {
			return o
		}
	}
	return nil
}
