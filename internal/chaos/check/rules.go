// Package check decides whether a history of locks kept the guarantees:
//
//	report := check.Sweep(events, check.Facts{Stored: rows, Gathered: true})
//	err := report.Err() // matches each Rule that was broken
//
// It uses only what holders, callers and clocks of the host said, and the rows
// that are left in the database. Calls of killed processes may be missing: that
// raises no false alarm.
package check

import "errors"

// A Rule is something promised. An error that reports a breach matches its Rule.
type Rule struct {
	text  string
	timed bool
}

// NewRule returns a Rule that a machine of any speed must keep.
func NewRule(text string) *Rule { return &Rule{text: text} }

// NewTimedRule returns a Rule that a slow machine may break: it needs a
// processor in time.
func NewTimedRule(text string) *Rule { return &Rule{text, true} }

// Error begins with the word by which a program that reads the output finds a
// violation.
func (r *Rule) Error() string { return "VIOLATED: " + r.text }

// Rules of locks.
var (
	ErrOverlap     = NewRule("two locks of a key were valid at once")
	ErrResurrected = NewRule("a lost lock was valid again")
	ErrToldLate    = NewRule("a holder was told of its loss after the next grant")
	ErrSetInPart   = NewRule("of a set some keys were granted and others were not")
	ErrOverLimit   = NewRule("more places of a limit were held than it has")
	ErrMalformed   = NewRule("the history contradicts itself")
	ErrNumbered    = NewRule("a key has another number in another process")
	ErrFailed      = NewTimedRule("a call failed in a way that it may not")
	ErrSlow        = NewTimedRule("a key came back too late")
	ErrLeaked      = NewTimedRule("a free key was refused for too long")
	ErrLong        = NewTimedRule("a call took too long")
)

// Rules of what is left in the database.
var (
	ErrTokenFell    = NewRule("an older holder wrote after a later one")
	ErrTokenShared  = NewRule("two locks of a key have one token")
	ErrTokenChanged = NewRule("a lock has two tokens")
	ErrOrder        = NewRule("two writes of a key have one place in the order")
	ErrWriteMissing = NewRule("a write that was acknowledged is not stored")
	ErrWriteStored  = NewRule("a write that was refused is stored, or one is stored twice")
)

// Unsafe returns the breaches in err of rules that a machine of any speed must
// keep: double grants, stale writes, locks that are never free again. It returns
// nil if there are none.
func Unsafe(err error) error {
	switch e := err.(type) { //nolint:errorlint // it looks at the whole tree
	case *Rule:
		if !e.timed {
			return e
		}
	case interface{ Unwrap() []error }:
		var all []error
		for _, part := range e.Unwrap() {
			all = append(all, Unsafe(part))
		}
		return errors.Join(all...)
	case interface{ Unwrap() error }:
		return Unsafe(e.Unwrap())
	}
	return nil
}
