package check

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/latchkey-go/latchkey/internal/chaos/history"
)

// What a Report's Err matches.
var (
	ErrOverlap     = errors.New("check: two locks of a key were valid at once")
	ErrResurrected = errors.New("check: a lost lock was valid again")
	ErrToldLate    = errors.New("check: a holder was told of its loss after the next grant")
	ErrSlow        = errors.New("check: a key came back too late")
	ErrLeaked      = errors.New("check: a free key was refused for too long")
	ErrLong        = errors.New("check: a call took too long")
	ErrSetInPart   = errors.New("check: of a set some keys were granted and others were not")
	ErrOverLimit   = errors.New("check: more places of a limit were held than it has")
	ErrOvertaken   = errors.New("check: a waiting request was passed over by later ones")
	ErrFailed      = errors.New("check: a call failed in a way that it may not")
)

// An Overlap is two locks of a key that were valid at once.
type Overlap struct {
	Key           int64
	First, Second int64 // locks
	From, To      history.Moment
	Point         bool // one of them was never seen valid, and counts at its From
}

// A Resurrection is a lock that was valid after its loss was told.
type Resurrection struct {
	Key, Lock int64
	At        history.Moment
	By        time.Duration
}

// A Late is a loss that was told after the next grant of the key had returned.
type Late struct {
	Key        int64
	Lock, Next int64
	At         history.Moment
	By         time.Duration
}

// A Report is what [Sweep] found.
type Report struct {
	Keys       int
	Operations int // calls: Try, of however many keys, and Unlock
	Contended  int // of them, those that another process' call for the key overlapped
	Troubled   int // of those, the ones that lie, in part at least, in a time of trouble
	Locks      int
	Losses     int

	ExcusedLate  int       // losses told late by a process that was frozen or starved
	UnseenGrants int       // that a process could not look at when it was frozen or starved
	Excused      []Overlap // see WithExcuse

	Tries   map[history.Result]int
	Unlocks map[history.Result]int
	Writes  map[history.Result]int
	Faults  map[int]int // by row

	Kinds  map[history.Kind]*KindCount
	Beside int // readers that were granted beside a reader
	Full   int // admissions that took the last place of a limit
	Waits  int // waiting requests whose turn was checked

	Overlaps      []Overlap
	InPart        []InPart
	OverLimit     []OverLimit
	Overtaken     []Overtaken
	Resurrected   []Resurrection
	Late          []Late // told after the server freed
	Leaks         []Leak
	Long          []Long
	Recoveries    []*Recovery
	Notifications []*Notification

	Malformed error // the first line that makes no sense
}

func newReport() *Report {
	return &Report{
		Tries:   map[history.Result]int{},
		Unlocks: map[history.Result]int{},
		Writes:  map[history.Result]int{},
		Faults:  map[int]int{},
		Kinds:   map[history.Kind]*KindCount{},
	}
}

// Err is nil if everything that Sweep checks held, else all of what did not.
func (r *Report) Err() error {
	errs := []error{r.Malformed}
	if n := len(r.Overlaps); n > 0 {
		errs = append(errs, fmt.Errorf("%w: %d times, first %+v", ErrOverlap, n, r.Overlaps[0]))
	}
	if n := len(r.Resurrected); n > 0 {
		errs = append(errs, fmt.Errorf("%w: %d times, first %+v", ErrResurrected, n, r.Resurrected[0]))
	}
	if n := len(r.Late); n > 0 {
		worst := slices.MaxFunc(r.Late, func(a, b Late) int { return cmp.Compare(a.By, b.By) })
		errs = append(errs, fmt.Errorf("%w: %d times, worst %+v", ErrToldLate, n, worst))
	}
	if n := len(r.Leaks); n > 0 {
		errs = append(errs, fmt.Errorf("%w: %d times, first %+v", ErrLeaked, n, r.Leaks[0]))
	}
	if n := len(r.Long); n > 0 {
		worst := slices.MaxFunc(r.Long, func(a, b Long) int { return cmp.Compare(a.Took, b.Took) })
		errs = append(errs, fmt.Errorf("%w: %d times, worst %+v", ErrLong, n, worst))
	}
	if n := len(r.InPart); n > 0 {
		errs = append(errs, fmt.Errorf("%w: %d times, first %+v", ErrSetInPart, n, r.InPart[0]))
	}
	if n := len(r.OverLimit); n > 0 {
		errs = append(errs, fmt.Errorf("%w: %d times, first %+v", ErrOverLimit, n, r.OverLimit[0]))
	}
	if n := len(r.Overtaken); n > 0 {
		errs = append(errs, fmt.Errorf("%w: %d times, first %+v", ErrOvertaken, n, r.Overtaken[0]))
	}
	for _, result := range []history.Result{history.Failed, history.Closed} {
		if n, m := r.Tries[result], r.Unlocks[result]; n+m > 0 {
			errs = append(errs, fmt.Errorf("%w: %d tries and %d unlocks %s", ErrFailed, n, m, result))
		}
	}
	for _, rec := range r.Recoveries {
		if rec.Slow() {
			errs = append(errs, fmt.Errorf("%w: row %d: longest %v, bound %v, never %d", ErrSlow, rec.Row, rec.Max, rec.Bound, rec.Never))
		}
	}
	return errors.Join(errs...)
}

// String is the report for people.
func (r *Report) String() string {
	var b strings.Builder
	w := tabwriter.NewWriter(&b, 0, 0, 2, ' ', 0)
	fmt.Fprintf(w, "calls\t%d\tof %d keys\n", r.Operations, r.Keys)
	fmt.Fprintf(w, "contended\t%d\t%d while there was trouble\n", r.Contended, r.Troubled)
	fmt.Fprintf(w, "locks\t%d\t%d lost\n", r.Locks, r.Losses)
	fmt.Fprintf(w, "valid at once\t%d\t%d more excused; %d grants that were not seen valid\n", len(r.Overlaps), len(r.Excused), r.UnseenGrants)
	fmt.Fprintf(w, "valid after the loss\t%d\n", len(r.Resurrected))
	fmt.Fprintf(w, "told late\t%d\t%d more by processes that were frozen or starved\n", len(r.Late), r.ExcusedLate)
	fmt.Fprintf(w, "refused, and free\t%d\n", len(r.Leaks))
	fmt.Fprintf(w, "calls too long\t%d\n", len(r.Long))
	fmt.Fprintf(w, "sets in part\t%d\n", len(r.InPart))
	fmt.Fprintf(w, "over a limit\t%d\t%d admissions took the last place\n", len(r.OverLimit), r.Full)
	fmt.Fprintf(w, "passed over\t%d\tof %d that waited without success\n", len(r.Overtaken), r.Waits)
	fmt.Fprintf(w, "readers beside readers\t%d\n", r.Beside)
	for _, kind := range slices.Sorted(maps.Keys(r.Kinds)) {
		k := r.Kinds[kind]
		fmt.Fprintf(w, "%s\t%d calls\t%d granted, %d refused, %d gave up; %d locks, %d lost\n", cmp.Or(kind, "plain"),
			k.Calls, k.Results[history.OK], k.Results[history.Held], k.Results[history.GaveUp], k.Locks, k.Lost)
	}
	writeCounts(w, "tries", r.Tries)
	writeCounts(w, "unlocks", r.Unlocks)
	writeCounts(w, "writes", r.Writes)
	for _, row := range slices.Sorted(maps.Keys(r.Faults)) {
		fmt.Fprintf(w, "faults of row %d\t%d\n", row, r.Faults[row])
	}
	for _, rec := range r.Recoveries {
		fmt.Fprintf(w, "recovery, row %d\t%d keys\tp50 %v, p99 %v, max %v, bound %v; survived %d, unasked %d, never %d; %s\n", rec.Row, rec.Keys,
			rec.P50.Round(time.Millisecond), rec.P99.Round(time.Millisecond), rec.Max.Round(time.Millisecond), rec.Bound,
			rec.Survived, rec.Unasked, rec.Never, rec.Name)
	}
	w.Flush()
	return b.String()
}

func writeCounts(w *tabwriter.Writer, name string, counts map[history.Result]int) {
	for _, result := range slices.Sorted(maps.Keys(counts)) {
		fmt.Fprintf(w, "%s %s\t%d\n", name, result, counts[result])
	}
}

// recovery is row's, made at its first fault.
func (r *Report) recovery(row int) *Recovery {
	for _, rec := range r.Recoveries {
		if rec.Row == row {
			return rec
		}
	}
	rec := &Recovery{Row: row}
	r.Recoveries = append(r.Recoveries, rec)
	return rec
}
