package sqllock

import (
	"cmp"
	"math"
	"runtime"
	"slices"
	"time"

	"github.com/latchkey-go/latchkey/internal/dialect"
)

// A batch is the keys that one statement takes and gives back, with the requests
// that wait for its answer.
// A connection has one, which it fills again and again.
//
// Invariant: each key that the batch takes is in phase requested, and each key that
// it gives back is in phase freeing. This holds from prepareBatchLocked until the
// batch is completed or the connection is lost.
type batch struct {
	statement dialect.Batch
	releases  []*keyState // beside statement.Release
	tries     []*keyState // beside statement.Try
	groups    []group     // beside statement.Any
	sets      []group     // beside statement.All

	// Of the statement under way, of whatever kind.
	underWay bool
	sent     time.Duration
	sentBoot time.Duration // the same by the clock that goes on while the system is suspended
	oldest   time.Duration // since when callers have waited

	wakes []chan struct{} // the callers to wake once the batch is completed
}

// clear empties the batch for its next use.
func (b *batch) clear() {
	b.statement.Reset()
	clear(b.releases)
	clear(b.tries)
	clear(b.groups)
	clear(b.sets)
	b.releases, b.tries, b.groups, b.sets = b.releases[:0], b.tries[:0], b.groups[:0], b.sets[:0]
}

// mayBring is how many keys the batch may bring.
func (b *batch) mayBring() int {
	n := len(b.tries) + len(b.groups)
	for _, set := range b.sets {
		n += len(set.keys)
	}
	return n
}

// prepareBatchLocked fills the batch with what is queued, up to limit keys and all
// groups. It reports whether to send the batch: there is something in it, or a
// heartbeat is due.
func (c *connection) prepareBatchLocked(limit int, beat bool) bool {
	sl, b := c.slot, &c.batch
	b.clear()
	full := c.session.Room() < limit
	limit = min(limit, c.session.Room())
	limit -= c.prepareReleasesLocked(limit)
	b.oldest, sl.oldest = sl.oldest, 0
	if len(sl.releases)+max(len(sl.tries)-limit, 0) > 0 {
		sl.oldest = b.oldest
		if full { // the next statement may leave some behind again: their timeout begins anew with each answer
			sl.oldest = now()
		}
	}
	room, set, beyond := c.roomLocked()
	c.prepareTriesLocked(limit, room, beyond)
	c.prepareGroupsLocked(room, set, beyond)
	checked := c.demand.checked
	c.looked, c.demand.full, c.demand.checked = false, false, false
	switch {
	case sl.oldest != 0:
	case checked && c.demand.keys > 0: // one check at a time: the timeout of the others begins anew with each answer
		sl.oldest = now()
	case c.demand.keys > 0, c.needsLook: // keys that need a check, or room in the lock table, are still queued
		sl.oldest = cmp.Or(b.oldest, now())
	case len(sl.groups) > 0: // they did not fit in
		sl.oldest = now()
	}
	sl.storeLengthLocked()
	if !beat && len(b.releases)+b.mayBring() == 0 {
		if sl.oldest != 0 { // nothing is left to send of what was taken, and there is more
			sl.signal()
		}
		return false
	}
	c.sendingLocked(b.oldest)
	return true
}

// prepareReleasesLocked adds up to limit releases. It returns how many it has
// taken out of the queue.
func (c *connection) prepareReleasesLocked(limit int) int {
	sl, b := c.slot, &c.batch
	releases := sl.releases[:min(limit, len(sl.releases))]
	for _, k := range releases {
		if k.phase == releasing && sessionKeyOf(k).conn == c {
			k.phase = freeing
			b.releases = append(b.releases, k)
			b.statement.Release = append(b.statement.Release, k.dbKey())
		}
	}
	sl.releases = slices.Delete(sl.releases, 0, len(releases))
	return len(releases)
}

// prepareTriesLocked adds up to limit of the keys that are queued one by one. room
// is how many more keys may be requested, and beyond the error for the others.
func (c *connection) prepareTriesLocked(limit, room int, beyond error) {
	sl, t := c.slot, c.slot.s.table
	limit = min(limit, len(sl.tries))
	tries, rest := sl.tries[:limit], sl.tries[limit:]
	sl.tries, sl.spareTries = append(sl.spareTries[:0], rest...), sl.tries // what follows may queue again
	for _, k := range tries {
		m := k.wantedMode()
		switch {
		case k.phase != queued || sessionKeyOf(k).slot != sl:
		case len(k.waiters) == 0: // all have given up
			k.phase = idle
			t.forgetLocked(k)
		case m == shared && !sl.s.options.dialect.Traits().Readers:
			t.deniedReadersLocked(k, errReaders)
		case !c.hasSecretLocked(k):
			if err := c.wantSecretLocked(k); err != nil {
				sl.s.denyKeyLocked(k, err)
			} else {
				sl.tries = append(sl.tries, k)
			}
		case len(c.batch.tries) < room:
			c.addTryLocked(k, m)
		case beyond == errLookFirst:
			c.needsLook = true
			sl.tries = append(sl.tries, k)
		default:
			sl.s.denyKeyLocked(k, beyond)
		}
	}
}

// addTryLocked adds k to the batch.
func (c *connection) addTryLocked(k *keyState, m lockMode) {
	c.startLocked(k, m)
	c.batch.tries = append(c.batch.tries, k)
	c.batch.statement.Try = append(c.batch.statement.Try, k.dbKey())
}

// startLocked notes that the batch requests k.
func (c *connection) startLocked(k *keyState, m lockMode) {
	sessionKeyOf(k).slot = c.slot
	c.slot.s.table.requestedLocked(k, m)
}

// A batchStats is what a connection has seen of how long things take. It decides how
// much the next statement carries. The connection's goroutine alone uses it.
type batchStats struct {
	roundTrip time.Duration // of the last statement
	answered  int           // callers whom it answered
	perCaller time.Duration // for a caller to get its answer and come again, beside all others; smoothed
}

// coalesce lets the callers that are about to queue something do it, for as long as
// the queue grows. So the callers that one statement has answered are in the next.
// It sets no timer. Where no goroutine is ready to run, it returns at once. Where
// the processor is busy with other work, it does not insist.
//
// It returns how many keys the next statement carries at most. Groups do not count:
// they all go. The limit is half of what is queued, where it pays (see halves). From then on
// there is always a half in the queue when the other one is answered, and coalesce
// has nothing to wait for.
func (c *connection) coalesce() (limit int) {
	const (
		all     = math.MaxInt
		patient = time.Millisecond // thousands of callers take less; a busy processor's turn takes more
	)
	queued := int(c.slot.queued.Load())
	if queued >= fullStatement && c.stats.halves(queued+c.stats.answered) {
		return all
	}
	began, first := now(), queued
	for range 16 { // callers may keep coming
		runtime.Gosched()
		before := queued
		if queued = int(c.slot.queued.Load()); queued == before || now()-began > patient {
			break
		}
	}
	if came := queued - first; came >= fullStatement {
		c.stats.observe(came, now()-began)
	}
	if queued >= 2*fullStatement && c.stats.halves(queued) {
		return queued / 2
	}
	return all
}

// observe notes that so many callers took so long to come again.
func (stats *batchStats) observe(callers int, took time.Duration) {
	each := took / time.Duration(callers)
	if stats.perCaller == 0 {
		stats.perCaller = each
	}
	stats.perCaller += (each - stats.perCaller) / 8
}

// halves reports whether two statements are faster than one for so many callers. One
// is then under way while the callers of the other get their answers and come again.
//
// Say the way there and back takes L, the server's work S and that of the callers
// C. One statement for all takes L + S + C. Two halves take 2L + S, or C if that is
// longer. So halves win where L < C. The round trip is L and some of S. It is so
// with a database nearby and hundreds of callers. Across a slow network one
// statement carries all.
func (stats *batchStats) halves(callers int) bool {
	return stats.roundTrip < time.Duration(callers)*stats.perCaller
}
