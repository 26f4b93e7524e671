package sqllock

import (
	"math"
	"runtime"
	"time"
)

// A batchStats is what a lease has seen of how long things take, to choose how much
// the next statement carries. Its lease's goroutine alone uses it.
type batchStats struct {
	roundTrip time.Duration // of the last statement
	answered  int           // callers whom it answered
	perCaller time.Duration // for a caller to get its answer and ask again, beside all others; smoothed
}

// coalesce lets those who are about to queue something do it, for as long as the
// queue grows: the callers that one statement has answered are in the next. It
// sets no timer: where no goroutine is ready to run it returns at once, and
// where the processor is busy with other work it does not insist.
//
// It returns how many keys the next statement is to carry at the most, beside
// groups, which all go: half of what is queued, where that pays (see halves).
// From then on there is always a half in the queue when the other one is
// answered, and nothing to gather.
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

// observe notes that so many callers took so long to ask again.
func (stats *batchStats) observe(callers int, took time.Duration) {
	each := took / time.Duration(callers)
	if stats.perCaller == 0 {
		stats.perCaller = each
	}
	stats.perCaller += (each - stats.perCaller) / 8
}

// halves reports whether it is faster to send what so many callers want in two
// statements, one while the callers of the other get their answers and ask again.
//
// With L for the way there and back, S for the server's work and C for the
// callers' own, a round of one statement takes L + S + C, and one of two
// takes 2L + S, or C if that is longer: halves win where L < C. The
// round trip is L and some of S. So it is with a database nearby and hundreds of
// callers; across a slow network one statement carries all.
func (stats *batchStats) halves(callers int) bool {
	return stats.roundTrip < time.Duration(callers)*stats.perCaller
}
