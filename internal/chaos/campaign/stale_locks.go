package campaign

import (
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/latchkey-go/latchkey/internal/chaos/check"
)

// What a lease cannot cover: a server that ends a session on its own frees its
// locks at that moment, and the client learns of it when the noticeDelay arrives. Until
// then two holders may believe. Faults of some rows do just that.
//
// The excuse is narrow. One connection ends, and with it all locks on it at
// once: so it holds for locks of the victim only, from the fault until the
// first of its holders is told, and that must be soon. And it holds only beside
// locks that other processes were granted after the fault. Two locks of one
// process, or one beside a lock from before the fault, are a violation.

// noticeDelay is how long noticeDelay of a connection's end may take on a busy machine: the
// socket is watched, so it is a matter of getting the processor.
const noticeDelay = 250 * time.Millisecond

// early is how long after a fault of row, at the latest, its victim may still
// believe; 0: not at all. lease is the session's.
func staleLimit(row int, lease time.Duration) time.Duration {
	switch row {
	case 7: // no noticeDelay ever comes: the client finds out by itself, at send + T(1−ρ) − m
		return lease - lease/1000 - lease/5 + making
	case 8, 11, 12, 13, 20, 25: // the connection ends on the client's side, too
		return noticeDelay
	}
	return 0
}

// making is how long it may take to make a fault, from its Begin: until then
// statements are answered, each of which begins the lease anew.
const making = 100 * time.Millisecond

// An Early is what happened to victims of a row whose sessions the server had
// ended.
type StaleLocks struct {
	Row     int
	Times   int           // locks that were valid beside a later one
	Longest time.Duration // for how long
}

func (e StaleLocks) String() string {
	return fmt.Sprintf("row %d: the server ended sessions, and %d locks were valid beside a later one until the noticeDelay arrived, for %v at the most",
		e.Row, e.Times, e.Longest.Round(time.Microsecond))
}

// measure is how long such victims believed beside a later holder.
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
