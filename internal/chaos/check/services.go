package check

import (
	"errors"
	"fmt"
	"strings"
	"text/tabwriter"

	"github.com/latchkey-go/latchkey/internal/chaos/history"
)

// A Left is what callers of the packages around sqllock have left in the
// database.
type Left struct {
	Advanced []Advanced
	Marks    []Marked
}

// A ServicesReport counts what callers of the packages around sqllock did. Each
// count comes with that of the calls in a time of trouble.
type ServicesReport struct {
	Advanced, Passed, Read Count
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
//
// trouble has the times from a fault until every process served again.
func Services(events []history.Event, left Left, trouble Trouble) (*ServicesReport, error) {
	c := &services{ServicesReport: &ServicesReport{}, trouble: trouble}
	c.advances(events, left)
	return c.ServicesReport, c.found.err()
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
type Trouble struct{ spans *spans }

// NewTrouble returns the times of faults as trouble, each from its Begin to its
// End.
func NewTrouble(faults []history.Fault) Trouble { return Trouble{disturbances(faults)} }

func (t Trouble) touch(from, to history.Moment) bool {
	return t.spans != nil && t.spans.touch(from, to)
}

// String is the report for people.
func (r *ServicesReport) String() string {
	var b strings.Builder
	w := tabwriter.NewWriter(&b, 0, 0, 2, ' ', 0)
	for _, line := range []struct {
		what string
		of   Count
	}{{"watermarks advanced", r.Advanced}, {"watermarks passed already", r.Passed}, {"watermarks read", r.Read}} {
		fmt.Fprintf(w, "%s\t%d\t%d in trouble\n", line.what, line.of.All, line.of.Troubled)
	}
	w.Flush()
	return b.String()
}

// Covered returns an error if some kind of call never happened in a time of
// trouble. Then the check shows nothing about faults.
func (r *ServicesReport) Covered() error {
	var errs []error
	for _, of := range []struct {
		what string
		Count
	}{{"Advance was committed", r.Advanced}, {"Advance was rejected", r.Passed}, {"watermark was read", r.Read}} {
		if of.Troubled == 0 {
			errs = append(errs, fmt.Errorf("no %s in a time of trouble", of.what))
		}
	}
	return errors.Join(errs...)
}
