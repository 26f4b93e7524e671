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
	Ranked  int   // terms whose token was compared with that of a term before
	Leading int   // terms in which a Status said that this process leads

	Looks   Count // of an operator
	Blind   Count // looks that failed
	Shown   int   // locks that were held during a look
	Named   int   // of them, those whose names had to be shown
	Waiting int   // waits that had to be shown
	Ages    Count // of locks, that processes were told

	Registry bool // there is one; otherwise nothing is known of the fields from Looks on
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
	c := &services{ServicesReport: &ServicesReport{Registry: p.Registry != nil}, trouble: p.Trouble}
	c.advances(events, left)
	c.payments(events, left)
	c.terms(rs, p.Leaderless)
	if p.Registry != nil {
		c.looks(events, rs, p)
	}
	return c.ServicesReport, c.found.err()
}

// ServiceParams are the facts about the system that [Services] needs.
type ServiceParams struct {
	Trouble    Trouble        // from a fault until every process served again
	Leaderless time.Duration  // bounds how long a key is without a leader; 0: nothing does
	Registry   *RegistryTimes // nil: there is no registry
	Kills      []int          // the rows of faults that kill their process
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

// Calls is a Count, in words for people.
type Calls struct {
	What string
	Count
}

// Calls returns the counts of all kinds of calls. It returns none if r is nil.
func (r *ServicesReport) Calls() []Calls {
	if r == nil {
		return nil
	}
	all := []Calls{
		{"watermarks advanced", r.Advanced}, {"watermarks passed already", r.Passed}, {"watermarks read", r.Read},
		{"payments carried out", r.Paid}, {"payments replayed", r.Replayed}, {"payments in flight", r.InFlight},
		{"payments with another payload", r.OtherPayload}, {"payments without a response", r.Unanswered},
		{"terms of leaders", r.Terms},
	}
	if r.Registry {
		all = append(all, Calls{"looks of an operator", r.Looks}, Calls{"ages of locks", r.Ages})
	}
	return all
}

// String is the report for people.
func (r *ServicesReport) String() string {
	var b strings.Builder
	w := tabwriter.NewWriter(&b, 0, 0, 2, ' ', 0)
	for _, of := range r.Calls() {
		fmt.Fprintf(w, "%s\t%d\t%d in trouble\n", of.What, of.All, of.Troubled)
	}
	fmt.Fprintf(w, "terms with a token to compare\t%d\t%d in which Status said so\n", r.Ranked, r.Leading)
	if r.Registry {
		fmt.Fprintf(w, "locks held during a look\t%d\t%d had to have a name; %d waits\n", r.Shown, r.Named, r.Waiting)
		fmt.Fprintf(w, "looks that failed\t%d\t%d in trouble\n", r.Blind.All, r.Blind.Troubled)
	}
	w.Flush()
	return b.String()
}

// mostBlind: of so many looks outside of trouble, at most one may fail.
const mostBlind = 10

// Covered returns an error if some kind of call never happened in a time of
// trouble, or if too little was seen of what a check compares. Then the check
// shows nothing about faults.
func (r *ServicesReport) Covered() error {
	var errs []error
	for _, of := range r.Calls() {
		if of.Troubled == 0 {
			errs = append(errs, fmt.Errorf("in times of trouble there was nothing of this: %s", of.What))
		}
	}
	if r.Leaders < 2 {
		errs = append(errs, fmt.Errorf("a key had %d processes as leaders", r.Leaders))
	}
	if r.Ranked == 0 || r.Leading == 0 {
		errs = append(errs, fmt.Errorf("of the terms of leaders, %d had tokens to compare, and in %d a Status said that the process leads", r.Ranked, r.Leading))
	}
	if !r.Registry {
		return errors.Join(errs...)
	}
	if r.Named == 0 || r.Waiting == 0 {
		errs = append(errs, fmt.Errorf("%d names of locks and %d waits had to be shown", r.Named, r.Waiting))
	}
	calm, blind := r.Looks.All-r.Looks.Troubled, r.Blind.All-r.Blind.Troubled
	if blind > (calm+blind)/mostBlind {
		errs = append(errs, fmt.Errorf("%d of %d looks of an operator failed without trouble", blind, calm+blind))
	}
	return errors.Join(errs...)
}
