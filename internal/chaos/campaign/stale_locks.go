package campaign

import (
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/latchkey-go/latchkey/internal/chaos/check"
)

// A lease cannot cover a server that ends a session on its own. The server frees
// the locks at that moment, and the client is notified a little later. Until then
// two locks of a key may be valid. Faults of some rows do just that.
//
// The excuse is narrow. One connection ends, and all locks on it end with it:
//
//   - The excuse holds for locks of the victim only, from the fault until the first
//     of its holders is told, which must be soon.
//   - It holds only against locks that other processes were granted after the fault.
//   - Two locks of one process, or a lock from before the fault, are a violation.

// noticeDelay is how long the notice of a connection's end may take on a busy
// machine. The socket is watched, so the notice only waits for a processor.
const noticeDelay = 250 * time.Millisecond

// endsWithin is how long the server may take to end a session, from the order to
// do so. Its keys must be free again by then, too. Plan.Busy comes on top.
const endsWithin = time.Second + slack

// staleLimit returns how long after a fault of row its victim may still take
// its locks for valid. It is 0 if it may not. lease is the session's.
func (p promises) staleLimit(row int, lease time.Duration) time.Duration {
	switch {
	case !slices.Contains(p.news, row):
		return 0
	case row == 7: // no notice ever comes
		return unnoticed(lease)
	}
	return p.notice(lease)
}

// notice returns how long after the end of a session, which closes the connection,
// its client may still take its locks for valid.
func (p promises) notice(lease time.Duration) time.Duration {
	return min(noticeDelay+p.busy, unnoticed(lease))
}

// unnoticed returns when a client without a notice finds out: at send + T(1−ρ) − m.
// A busy machine makes that no later, since the client looks at the clock.
func unnoticed(lease time.Duration) time.Duration { return lease - lease/1000 - lease/5 + making }

// making is how long it may take to make a fault, from its Begin. Until then
// statements are answered, and each begins the lease anew.
const making = 100 * time.Millisecond

// StaleLocks counts the locks of a row's victims that were valid at the same
// time as a later one, after the server had ended their session.
type StaleLocks struct {
	Row     int
	Times   int           // locks that were valid beside a later one
	Longest time.Duration // for how long
}

func (e StaleLocks) String() string {
	return fmt.Sprintf("row %d: the server ended sessions, and %d locks overlapped a later one until the client noticed, for at most %v",
		e.Row, e.Times, e.Longest.Round(time.Microsecond))
}

// measure returns how long the locks of such victims overlapped later ones.
func (x *explanation) measure(excused []check.Overlap) (all []StaleLocks) {
	byRow := map[int]*StaleLocks{}
	for _, o := range excused {
		w, ok := x.victims[o.First]
		if !ok {
			w = x.victims[o.Second]
		}
		e := byRow[w.Row]
		if e == nil {
			e = &StaleLocks{Row: w.Row}
			byRow[w.Row] = e
		}
		e.Times++
		e.Longest = max(e.Longest, time.Duration(o.To-o.From))
	}
	for _, row := range slices.Sorted(maps.Keys(byRow)) {
		all = append(all, *byRow[row])
	}
	return all
}
