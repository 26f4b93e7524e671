package campaign

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/latchkey-go/latchkey/internal/chaos/check"
	"github.com/latchkey-go/latchkey/internal/chaos/history"
)

// slack is what the campaign itself may take beyond a goal before it is a
// violation. It covers the pause before a caller asks again, the time to connect,
// and the wait for a processor. Plan.Busy comes on top.
const slack = 250 * time.Millisecond

// A bound says within which time the keys of a victim must be granted again.
type bound struct {
	rows []int
	from check.Origin
	goal time.Duration
}

// notifyGoal is how soon 99 in 100 holders are told of a connection that was
// closed, where the socket is watched. A miss is a remark and no violation,
// since a busy machine may be the cause.
const notifyGoal = 100 * time.Millisecond

// notifyBound returns within which time half of the holders must be told.
// Without the watch of the socket it takes half a heartbeat on average.
func notifyBound(lease, busy time.Duration) time.Duration { return heartbeat(lease)/2 + busy }

// heartbeat is that of a session with this lease.
func heartbeat(lease time.Duration) time.Duration { return lease / 5 }

// callTimeout bounds an Unlock and each call that does not wait.
const callTimeout = time.Second + slack

// What faults do to processes, by row.
var (
	kills   = []int{1}
	stops   = []int{2, 3}                          // the process does not run, so it cannot write down that it was told
	starves = []int{27}                            // processes hardly run
	slows   = []int{9, 10}                         // answers are late
	cuts    = []int{2, 3, 4, 5, 6, 16, 32, 35, 36} // the process does not run, or gets no answer
)

// sweepOptions returns the bounds that the campaign checks.
func (r *Result) sweepOptions(events []history.Event, excuse func(a, b check.Grant) bool) []check.Option {
	options := []check.Option{
		check.WithFrozen(check.TimesOf(events, stops...)),
		check.WithStarved(check.TimesOf(events, starves...)),
		check.WithSlow(check.TimesOf(events, slows...)),
		check.WithCut(check.TimesOf(events, cuts...)),
		check.WithKills(kills...),
		check.WithExcuse(excuse),
		check.WithNotifications(r.promises().notifies...),
		check.WithCallTimeout(callTimeout + r.busy),
		check.WithFree(r.settings.Lease + slack + r.busy),
	}
	if !r.interrupted {
		options = append(options, check.WithComplete())
	}
	for _, i := range r.outcomes {
		if !r.bystander(i.Fault) {
			options = append(options, check.WithTrouble(i.Fault.Begin, i.Fault.End+history.Moment(i.Recovery)))
		}
	}
	return append(options, r.recoveryOptions()...)
}

// recoveryOptions returns the time in which the keys of a victim must be
// granted again, by row.
func (r *Result) recoveryOptions() (options []check.Option) {
	for _, p := range r.promises().bounds {
		for _, row := range p.rows {
			options = append(options, check.WithRecovery(row, p.from, p.goal+slack+r.busy), check.WithGoal(row, p.goal))
		}
	}
	return options
}

// bounded reports whether there is a bound on the time until the keys of a
// victim of row are free.
func (r *Result) bounded(row int) bool {
	return slices.ContainsFunc(r.promises().bounds, func(p bound) bool { return slices.Contains(p.rows, row) })
}

// errNotifiedLate reports that holders were told too late.
var errNotifiedLate = errors.New("campaign: holders were told too late")

// notifications returns an error for each row whose holders were told too late.
func (r *Result) notifications() (err error) {
	for _, t := range r.Report.Notifications {
		if late := r.lateNotification(t); late != "" {
			err = errors.Join(err, fmt.Errorf("%w: row %d: %s", errNotifiedLate, t.Row, late))
		}
	}
	return err
}

// lateNotification says how t breaks a bound. It is empty if it does not.
func (r *Result) lateNotification(t *check.Notification) string {
	bound, of := notifyBound(r.settings.Lease, r.busy), r.promises()
	switch {
	case slices.Contains(of.parts, t.Row) && t.After > 0:
		return fmt.Sprintf("%d of %d after the next grant", t.After, t.Locks)
	case slices.Contains(of.closes, t.Row) && t.P50 > bound:
		return fmt.Sprintf("half of them within %v, bound %v", t.P50, bound)
	case slices.Contains(of.closes, t.Row) && t.Heard > bound:
		return fmt.Sprintf("half of %d who relied on their contexts within %v, bound %v", t.Listeners, t.Heard, bound)
	}
	return ""
}

// missedGoal says which goal t misses without a violation. It is empty if there
// is none.
func (r *Result) missedGoal(t *check.Notification) string {
	if slices.Contains(r.promises().closes, t.Row) && t.P99 > notifyGoal {
		return fmt.Sprintf("told: p99 over %v", notifyGoal)
	}
	return ""
}
