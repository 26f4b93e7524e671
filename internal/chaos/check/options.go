package check

import (
	"time"

	"github.com/latchkey-go/latchkey/internal/chaos/history"
)

// An Option changes what [Sweep] looks at.
type Option func(*sweep)

// noting is within which time a process notes what has happened, when it may run
// again, or while others take most of the processor from it.
const noting = history.Moment(500 * time.Millisecond)

// WithFrozen leaves out what a process cannot do in time while it is frozen: to
// note that it was told of a loss, or that it was granted a lock. It must when it
// wakes up, and what it believes then is checked all the same.
func WithFrozen(t Times) Option { return func(s *sweep) { s.frozen = t } }

// WithStarved allows processes that hardly run to note a loss a little late.
func WithStarved(t Times) Option { return func(s *sweep) { s.starved = t } }

// WithCut is when processes, or what they had asked for, stood still: a call of
// that time does not make those beside it contended.
func WithCut(t Times) Option { return func(s *sweep) { s.cut = t } }

// A Grant is a lock, and when the call that brought it had returned.
type Grant struct {
	history.Hold
	Granted history.Moment
}

// WithExcuse sets which two locks of a key may have been valid at once, and in
// which order told and granted.
func WithExcuse(excuse func(a, b Grant) bool) Option { return func(s *sweep) { s.excuse = excuse } }

// An Origin is the moment of a fault from which recovery is counted.
type Origin int

// The origins.
const (
	FromBegin Origin = iota
	FromEnd          // a key that came back before counts as recovered at once
)

// WithRecovery measures, for each fault of row, how long it takes until the keys
// that its victim held are granted again, and holds the longest against bound.
func WithRecovery(row int, origin Origin, bound time.Duration) Option {
	return func(s *sweep) { s.rules[row] = rule{origin: origin, bound: bound} }
}

// WithGoal counts the keys that come back within goal, by the measure of the row's
// WithRecovery. To miss it is no violation.
func WithGoal(row int, goal time.Duration) Option {
	return func(s *sweep) { s.goals[row] = goal }
}

// WithTrouble tells when there was trouble: from the beginning of a fault until
// every process served again. It may be given several times.
func WithTrouble(from, to history.Moment) Option {
	return func(s *sweep) { s.trouble.add(from, to) }
}

// WithCallTimeout bounds an Unlock, and a call that does not wait. The time for which its
// process was frozen or starved does not count.
func WithCallTimeout(bound time.Duration) Option { return func(s *sweep) { s.callTimeout = bound } }

// WithFree bounds how long, outside trouble, a key that nobody holds may be
// refused to those who want it.
func WithFree(bound time.Duration) Option { return func(s *sweep) { s.free = bound } }

// WithComplete demands that a process has told the whole story of each lock, but
// for those that a fault of kills was done to.
func WithComplete(kills ...int) Option {
	return func(s *sweep) { s.complete, s.kills = true, kills }
}

// WithNotifications has the Notifications of rows made.
func WithNotifications(rows ...int) Option {
	return func(s *sweep) { s.told = append(s.told, rows...) }
}
