package round

import (
	"slices"
	"sort"
	"time"

	"github.com/latchkey-go/latchkey/internal/chaos/check"
	"github.com/latchkey-go/latchkey/internal/chaos/history"
)

// interruption is the least pause between two grants of a process that counts
// as an interruption. Undisturbed, a process is granted a lock every few
// milliseconds.
const interruption = 500 * time.Millisecond

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
	grants := map[int][]history.Moment{}
	for _, e := range events {
		switch {
		case e.Hold != nil:
			holds[e.Hold.Lock] = *e.Hold
		case e.Try != nil && e.Try.Result == history.OK:
			grants[e.Try.Process] = append(grants[e.Try.Process], e.Try.End)
		case e.Write != nil && e.Write.Result == history.Fenced:
			if o := at(all, e.Write.End); o != nil {
				o.Fenced++
			}
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
	for _, moments := range grants {
		slices.Sort(moments)
		for i := range all {
			all[i].served(moments)
		}
	}
	for i := range all {
		slices.Sort(all[i].Told)
		slices.Sort(all[i].Served)
	}
}

// served adds a process that was granted locks at moments. What counts is the
// end of its longest pause between the beginning of the fault and its end.
func (o *Outcome) served(moments []history.Moment) {
	last, end, longest := o.Begin, history.Moment(0), history.Moment(0)
	for _, m := range moments {
		if m <= o.Begin {
			continue
		}
		if m > o.Settled { // by then each process had been granted one
			break
		}
		if m-last > longest {
			longest, end = m-last, m
		}
		last = m
	}
	if longest < history.Moment(interruption) {
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
		case w.inSplit(v.From):
			o.Excused++
			o.Longest = max(o.Longest, time.Duration(v.To-v.From))
		default:
			o.News++
		}
	}
	for _, s := range w.split {
		if o := at(all, s.from); o != nil {
			o.Two = append(o.Two, time.Duration(s.to-s.from))
		}
	}
}

// missing finds the writes that were acknowledged and are not stored, and adds
// each to the fault that may have lost it. It returns the history with these
// writes as of unknown result, and how many no fault accounts for.
func missing(all []Outcome, events []history.Event, rows []check.Stored, synchronous bool) (without []history.Event, lost int) {
	stored := map[int64]bool{}
	for _, row := range rows {
		stored[row.Number] = true
	}
	for _, e := range events {
		if e.Write != nil && e.Write.Result == history.OK && !stored[e.Write.Number] {
			o := loser(all, e.Write.End)
			if o != nil {
				o.Missing++
			}
			if o != nil && kindOf(o.Row).Loses && !synchronous {
				w := *e.Write
				w.Result = history.Failed
				e.Write = &w
			} else {
				lost++
			}
		}
		without = append(without, e)
	}
	return without, lost
}

// loser returns the fault that may have lost a commit acknowledged at m. It is
// the next one if that came at once and may lose commits, or the last one.
func loser(all []Outcome, m history.Moment) *Outcome {
	i := sort.Search(len(all), func(i int) bool { return all[i].Begin > m })
	if i < len(all) && all[i].Begin-m <= behind && kindOf(all[i].Row).Loses {
		last := at(all, m)
		if last == nil || !kindOf(last.Row).Loses || m > last.Settled {
			return &all[i]
		}
	}
	return at(all, m)
}
