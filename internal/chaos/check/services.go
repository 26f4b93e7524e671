package check

import (
	"errors"
	"fmt"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/latchkey-go/latchkey/internal/chaos/history"
)

// A Left is what callers of the packages around sqllock have left in the
// database.
type Left struct {
	Advanced []Advanced
	Marks    []Marked
	Paid     []Paid
}

// A ServicesReport counts what callers of the packages around sqllock did. Each
// count comes with that of the calls in a time of trouble.
type ServicesReport struct {
	Advanced, Passed, Read Count // of watermarks

	// Of requests with an idempotency key.
	Paid         Count // carried out, or declined
	Replayed     Count // answered with what was stored
	InFlight     Count // rejected, since another one was under way
	OtherPayload Count // rejected
	Unanswered   Count // failed, or without a response

	Terms   Count // of leaders
	Leaders int   // processes that led one key, at most

	Looks   Count // of an operator
	Shown   int   // locks that were held during a look
	Named   int   // of them, those whose names had to be shown
	Waiting int   // waits that had to be shown
	Ages    Count // of locks, that processes were told
}

// A Count is calls.
type Count struct {
	All      int
	Troubled int // of them, those that lie, in part at least, in a time of trouble
}

// Services checks what callers of the packages around sqllock saw against what
// they left:
//
//   - A watermark only rises: see advances.
//   - A request with an idempotency key takes effect once: see payments.
//   - A key has a leader, and each has a greater token: see terms.
//   - What is shown of locks is so: see looks.
func Services(events []history.Event, left Left, p ServiceParams) (*ServicesReport, error) {
	rs, err := index(events)
	if err != nil {
		return nil, err
	}
	c := &services{ServicesReport: &ServicesReport{}, trouble: p.Trouble}
	c.advances(events, left)
	c.payments(events, left)
	c.terms(rs, p.Leaderless)
	c.looks(events, rs, p)
	return c.ServicesReport, c.found.err()
}

// ServiceParams are the facts about the system that [Services] needs.
type ServiceParams struct {
	Trouble    Trouble       // from a fault until every process served again
	Leaderless time.Duration // bounds how long a key is without a leader; 0: nothing does
	Registry   RegistryTimes
	Kills      []int // the rows of faults that kill their process
}

// services is a check under way.
type services struct {
	*ServicesReport
	trouble Trouble
	found   findings
}

// count adds a call to n.
func (c *services) count(n *Count, begin, end history.Moment) {
	n.All++
	if c.trouble.touch(begin, end) {
		n.Troubled++
	}
}

// Trouble is times of trouble.
type Trouble struct {
	all   *spans
	Times // by process
}

// NewTrouble returns the times of faults as trouble, each from its Begin to its
// End.
func NewTrouble(faults []history.Fault) Trouble {
	return Trouble{disturbances(faults), timesOf(faults)}
}

// touch reports whether there was trouble at some moment between two.
func (t Trouble) touch(from, to history.Moment) bool { return t.all != nil && t.all.touch(from, to) }

// at is touch for the trouble of one process.
func (t Trouble) at(process int, from, to history.Moment) bool {
	return t.Times.touch(process, from, to)
}

// A named Count has words for people.
type named struct {
	what string
	Count
}

func (r *ServicesReport) counts() []named {
	return []named{
		{"watermarks advanced", r.Advanced}, {"watermarks passed already", r.Passed}, {"watermarks read", r.Read},
		{"payments carried out", r.Paid}, {"payments replayed", r.Replayed}, {"payments in flight", r.InFlight},
		{"payments with another payload", r.OtherPayload}, {"payments without a response", r.Unanswered},
		{"terms of leaders", r.Terms},
		{"looks of an operator", r.Looks}, {"ages of locks", r.Ages},
	}
}

// String is the report for people.
func (r *ServicesReport) String() string {
	var b strings.Builder
	w := tabwriter.NewWriter(&b, 0, 0, 2, ' ', 0)
	for _, of := range r.counts() {
		fmt.Fprintf(w, "%s\t%d\t%d in trouble\n", of.what, of.All, of.Troubled)
	}
	fmt.Fprintf(w, "locks held during a look\t%d\t%d had to have a name; %d waits\n", r.Shown, r.Named, r.Waiting)
	w.Flush()
	return b.String()
}

// Covered returns an error if some kind of call never happened in a time of
// trouble. Then the check shows nothing about faults.
func (r *ServicesReport) Covered() error {
	var errs []error
	for _, of := range r.counts() {
		if of.Troubled == 0 {
			errs = append(errs, fmt.Errorf("in times of trouble there was nothing of this: %s", of.what))
		}
	}
	if r.Leaders < 2 {
		errs = append(errs, fmt.Errorf("a key had %d processes as leaders", r.Leaders))
	}
	if r.Named == 0 || r.Waiting == 0 {
		errs = append(errs, fmt.Errorf("%d names of locks and %d waits had to be shown", r.Named, r.Waiting))
	}
	return errors.Join(errs...)
}
