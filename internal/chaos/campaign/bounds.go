package campaign

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/latchkey-go/latchkey/internal/chaos/check"
	"github.com/latchkey-go/latchkey/internal/chaos/history"
)

// slack is what a busy machine may take beyond a goal before it is a violation:
// the pause of who asks again, reconnecting, and a share of the processor for
// each.
const slack = 250 * time.Millisecond

// A promise is within which time the keys of a victim are to be granted again.
type bound struct {
	rows []int
	from check.Origin
	goal time.Duration
}

func bounds(lease time.Duration) []bound {
	return []bound{
		// The server sees that the connection has ended.
		{[]int{1, 7, 8, 11, 12, 13, 20, 25}, check.FromBegin, time.Second},
		// The lease passes.
		{[]int{2, 4, 5}, check.FromBegin, lease + 500*time.Millisecond},
		// Nothing happens until it is mended; then what is overdue does.
		{[]int{16}, check.FromEnd, time.Second},
		// The server starts anew.
		{[]int{14, 15}, check.FromEnd, 2 * time.Second},
	}
}

// notifyGoal is how soon holders are to know of a connection that was closed,
// where the socket is watched: 99 in 100 of them. To miss it is a remark, since a
// busy machine may be the cause.
const notifyGoal = 100 * time.Millisecond

// notifyBound is within which time half of them must know: without the watch it
// takes half a heartbeat in the mean until they are told.
func notifyBound(lease time.Duration) time.Duration { return heartbeat(lease) / 2 }

// heartbeat is that of a session with this lease.
func heartbeat(lease time.Duration) time.Duration { return lease / 5 }

// callTimeout bounds calls that do not wait, and Unlocks.
const callTimeout = time.Second + slack

// closes is the rows in which a connection is closed, and both sides hear of it.
var closes = []int{8, 13, 14, 15}

// parts is the rows in which client and server cannot hear each other, so that the
// client must know before the server frees.
var parts = []int{2, 4, 5, 16}

// notifies is the rows whose faults cost locks at a moment that is known.
var notifies = []int{2, 4, 5, 7, 8, 13, 14, 15, 16, 20, 25}

// What faults do to processes, by row.
var (
	kills   = []int{1}
	stops   = []int{2, 3}              // the process does not run, and so cannot note what it was told
	starves = []int{27}                // processes hardly run
	cuts    = []int{2, 3, 4, 5, 6, 16} // the process does not run, or does not hear what it asked
)

// sweepOptions is what the campaign promises, and measures.
func (r *Result) sweepOptions(events []history.Event, excuse func(a, b check.Grant) bool) []check.Option {
	options := []check.Option{
		check.WithFrozen(check.TimesOf(events, stops...)),
		check.WithStarved(check.TimesOf(events, starves...)),
		check.WithCut(check.TimesOf(events, cuts...)),
		check.WithExcuse(excuse),
		check.WithNotifications(notifies...),
		check.WithCallTimeout(callTimeout),
		check.WithFree(r.settings.Lease + slack),
	}
	if !r.interrupted {
		options = append(options, check.WithComplete(kills...))
	}
	for _, i := range r.outcomes {
		if !r.bystander(i.Fault) {
			options = append(options, check.WithTrouble(i.Fault.Begin, i.Fault.End+history.Moment(i.Recovery)))
		}
	}
	return append(options, r.recoveryOptions()...)
}

// recoveryOptions is what the fault table says about the time in which the keys of
// a victim must be granted again. Nothing, where faults overlap: who should get
// the key may be frozen, too.
func (r *Result) recoveryOptions() (options []check.Option) {
	if r.overlapping {
		return nil
	}
	for _, p := range bounds(r.settings.Lease) {
		for _, row := range p.rows {
			options = append(options, check.WithRecovery(row, p.from, p.goal+slack), check.WithGoal(row, p.goal))
		}
	}
	return options
}

// promised reports whether it is promised when the keys of a victim of row come
// back.
func (r *Result) bounded(row int) bool {
	return !r.overlapping && slices.ContainsFunc(bounds(r.settings.Lease), func(p bound) bool { return slices.Contains(p.rows, row) })
}

// errNotifiedLate: holders were told too late.
var errNotifiedLate = errors.New("campaign: holders were told too late")

// notifications is what of the promises about notification was broken.
func (r *Result) notifications() (err error) {
	for _, t := range r.Report.Notifications {
		if late := r.lateNotification(t); late != "" {
			err = errors.Join(err, fmt.Errorf("%w: row %d: %s", errNotifiedLate, t.Row, late))
		}
	}
	return err
}

// lateNotification is how t broke a promise, empty if it did not.
func (r *Result) lateNotification(t *check.Notification) string {
	bound := notifyBound(r.settings.Lease)
	switch {
	case slices.Contains(parts, t.Row) && t.After > 0:
		return fmt.Sprintf("%d of %d after the next grant", t.After, t.Locks)
	case slices.Contains(closes, t.Row) && t.P50 > bound:
		return fmt.Sprintf("half of them within %v, bound %v", t.P50, bound)
	case slices.Contains(closes, t.Row) && t.Heard > bound:
		return fmt.Sprintf("half of %d who relied on their contexts within %v, bound %v", t.Listeners, t.Heard, bound)
	}
	return ""
}

// missedGoal is a remark about what is not as it should be and no violation,
// empty if there is none.
func missedGoal(t *check.Notification) string {
	if slices.Contains(closes, t.Row) && t.P99 > notifyGoal {
		return fmt.Sprintf("told: p99 over %v", notifyGoal)
	}
	return ""
}
