package check

import (
	"time"

	"github.com/latchkey-go/latchkey/internal/chaos/history"
)

// An Option changes what [Sweep] looks at.
type Option func(*sweep)

// noting is how long a process may take to write down an event after it wakes
// up, or while it is starved.
const noting = history.Moment(500 * time.Millisecond)

// WithFrozen excuses processes that are frozen. Such a process cannot write
// down in time that it was told of a loss, or was granted a lock. It must when
// it wakes up, and what it sees then is checked.
func WithFrozen(t Times) Option { return func(s *sweep) { s.frozen = t } }

// WithStarved lets a process that hardly runs write down a loss a little late.
func WithStarved(t Times) Option { return func(s *sweep) { s.starved = t } }

// WithCut says when processes, or their requests, stood still. A call of that
// time does not make other calls contended, and the time does not count in a
// recovery.
func WithCut(t Times) Option { return func(s *sweep) { s.cut = t } }

// WithSlow says when the network of processes was slow. A call may need two
// statements, since another call had reserved its key for the time of the first.
// So it may take twice as long then. That does not hold for Unlock.
func WithSlow(t Times) Option { return func(s *sweep) { s.slow = t } }

// A Grant is a lock, with when the call that brought it began and had returned.
type Grant struct {
	history.Hold
	Requested, Granted history.Moment
}

// WithExcuse sets which two locks of a key may have been valid at once, and may
// have been told of a loss after the next grant.
func WithExcuse(excuse func(a, b Grant) bool) Option { return func(s *sweep) { s.excuse = excuse } }

// An Origin is the moment of a fault from which recovery is counted.
type Origin int

// The origins.
const (
	FromBegin Origin = iota
	FromEnd          // a key that came back before counts as recovered at once
)

// WithRecovery measures, for each fault of row, how long it takes until the
// keys of its victim are granted again. The longest time must be within bound.
func WithRecovery(row int, origin Origin, bound time.Duration) Option {
	return func(s *sweep) { s.rules[row] = rule{origin: origin, bound: bound} }
}

// WithGoal counts the keys that come back within goal, by the measure of the row's
// WithRecovery. To miss it is no violation.
func WithGoal(row int, goal time.Duration) Option {
	return func(s *sweep) { s.goals[row] = goal }
}

// WithTrouble marks a time of trouble: from the beginning of a fault until
// every process served again. It may be given several times.
func WithTrouble(from, to history.Moment) Option {
	return func(s *sweep) { s.trouble.add(from, to) }
}

// WithCallTimeout bounds an Unlock, and a call that does not wait. Time in
// which the process was frozen or starved does not count.
func WithCallTimeout(bound time.Duration) Option { return func(s *sweep) { s.callTimeout = bound } }

// WithFree bounds how long a free key may be refused to callers, outside
// trouble.
func WithFree(bound time.Duration) Option { return func(s *sweep) { s.free = bound } }

// WithKills says which rows' faults kill a process. It cannot write down how its
// calls and locks ended.
func WithKills(rows ...int) Option { return func(s *sweep) { s.kills = rows } }

// WithComplete demands the beginning and the end of each lock in the history, but
// for those of processes that were killed.
func WithComplete() Option { return func(s *sweep) { s.complete = true } }

// WithNotifications adds a Notification for each of rows to the report.
func WithNotifications(rows ...int) Option {
	return func(s *sweep) { s.told = append(s.told, rows...) }
}
