package check

import (
	"errors"
	"fmt"
	"time"

	"github.com/latchkey-go/latchkey/internal/chaos/history"
)

// A Grant is a lock, with when the call that brought it had returned.
type Grant struct {
	history.Hold
	Granted history.Moment
}

// Facts are what a check knows of the system in addition to its history. The zero value
// of a bound demands nothing.
type Facts struct {
	// Excuse reports whether two locks of a key may have been valid at once, and
	// may have been told of a loss after the next grant.
	Excuse func(a, b Grant) bool

	// Complete demands the beginning and the end of each lock in the history, but
	// for those of processes that were killed.
	Complete bool

	// Rows of the fault table, by what their faults do to processes.
	Kills   []int
	Freezes []int // the process does not run, so it cannot write down that it was told
	Slows   []int // answers are late: a call may need two statements, and so twice as long
	Cuts    []int // the process does not run, gets no answer, or finds no server that may grant

	// Trouble is the times from a fault until every process served again.
	Trouble []history.Fault

	Effects     map[int]Effect // of rows, that are measured
	CallTimeout time.Duration  // bounds an Unlock, and any other call beyond its deadline
	Free        time.Duration  // bounds how long a free key may be refused, outside trouble

	Stored     []Stored // what fenced writes have left in the database
	Gathered   bool     // Stored is known
	TokensRise bool     // a lock draws a later token after a restart of its server
}

// An Effect says what the faults of a row cost their victims, and how soon that
// must be over.
type Effect struct {
	Told    bool          // holders lose their locks: measure when they are told
	Back    time.Duration // within which the victim's keys must be granted again; 0: not bounded
	Slack   time.Duration // added to Back before it is a violation
	FromEnd bool          // Back counts from the end of the fault; a key that came back before counts as 0
}

// An Overlap is two locks of a key that were valid at once.
type Overlap struct {
	Key           int64
	First, Second int64 // locks
	From, To      history.Moment
}

// A Finding is one breach of a Rule.
type Finding struct {
	Rule *Rule
	At   history.Moment // 0: not known
	Text string
}

// A Report is what [Sweep] found.
type Report struct {
	Findings []Finding
	Overlaps []Overlap
	Excused  []Overlap // see Facts.Excuse

	Operations int // calls, of however many keys, and Unlocks
	Contended  int // calls that were refused, since another caller had the key
	Troubled   int // calls that lie, in part at least, in a time of trouble
	Locks      int
	Losses     int
	ToldAwake  int // losses told after the next grant by a process that had been frozen

	Beside int // readers that were granted while another reader held the key
	Full   int // admissions that took the last place of a limit

	Calls   map[history.Kind]map[history.Result]int
	Unlocks map[history.Result]int
	Writes  map[history.Result]int
	Rows    map[int]*Times // of rows with an Effect

	Versions map[string]*Share // of the kit
}

// found notes a breach of rule.
func (r *Report) found(rule *Rule, at history.Moment, format string, args ...any) {
	r.Findings = append(r.Findings, Finding{rule, at, fmt.Sprintf(format, args...)})
}

// Err returns an error that matches each Rule that was broken, or nil.
func (r *Report) Err() error {
	var order []*Rule
	first, count := map[*Rule]Finding{}, map[*Rule]int{}
	for _, f := range r.Findings {
		if count[f.Rule] == 0 {
			order, first[f.Rule] = append(order, f.Rule), f
		}
		count[f.Rule]++
	}
	var errs []error
	for _, rule := range order {
		errs = append(errs, fmt.Errorf("%w: %d times, first: %s", rule, count[rule], first[rule].Text))
	}
	return errors.Join(errs...)
}
