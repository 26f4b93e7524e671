//go:build linux

package round

import (
	"time"

	"github.com/latchkey-go/latchkey/internal/chaos/check"
	"github.com/latchkey-go/latchkey/internal/chaos/history"
)

// news is how long something that a server did may take to reach a process.
const news = history.Moment(250 * time.Millisecond)

// during returns the outcome in whose time m lies; nil if there is none.
func during(all []Outcome, m history.Moment) *Outcome {
	for i := range all {
		if o := &all[i]; o.Begin <= m && m <= o.Settled+news {
			return o
		}
	}
	return nil
}

// excuse reports whether a and b may have been valid at once; see check.Facts. The
// promise of a lock holds on one writable primary, and a fault may make two of
// them. So both locks may have been valid in its time, from the later grant until
// the end of one of them. Nothing excuses two locks of one process.
func excuse(all []Outcome, a, b check.Grant) bool {
	if a.Granted > b.Granted {
		a, b = b, a
	}
	o := during(all, b.Granted)
	ends := func(g check.Grant) history.Moment { return max(g.Valid, g.Told) }
	return a.Process != b.Process && o != nil && min(ends(a), ends(b)) <= o.Settled+news
}

// missing finds the writes that were acknowledged and are not stored, and adds
// each to the fault that may have lost it. It returns the history with these
// writes as of unknown result, and those that no fault accounts for.
func missing(all []Outcome, events []history.Event, rows []check.Stored) (without []history.Event, lost []history.Write) {
	stored := map[int64]bool{}
	for _, row := range rows {
		stored[row.Number] = true
	}
	for _, e := range events {
		if e.Write != nil && e.Write.Result == history.OK && !stored[e.Write.Number] {
			write := *e.Write
			if o := loser(all, write); o == nil {
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

// behind is how late replication may be: a commit so long before a fault may be
// lost to it.
const behind = history.Moment(2 * time.Second)

// loser returns the fault, of a kind that loses commits, that may have lost this
// one; nil if there is none.
func loser(all []Outcome, write history.Write) *Outcome {
	for i := range all {
		o := &all[i]
		if kindOf(o.Row).loses && write.End >= o.Begin-behind && write.Begin <= o.Settled {
			return o
		}
	}
	return nil
}
