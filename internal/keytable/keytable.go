// Package keytable records which callers of one process hold or want which
// keys. It decides a second caller of the process without the database:
//
//	t := keytable.New(keytable.Config{…})
//	hold, err := t.Acquire(ctx, keytable.Want{}, id) // by a caller
//	…
//	t.Prepare(owner, limits, &batch) // by a source: what to send
//	… // the statement, and its response
//	t.Complete(owner, &batch, now())
//
// A source serves the table from a database. It takes a [Batch] off the table,
// sends it, and completes it, from a goroutine of its own. The table calls its
// source for one purpose only: to report that something was queued.
//
// The table has no goroutine, knows no SQL, and reads the clock that it is given.
package keytable

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"time"
)

// An ID is a key as the database sees it.
type ID struct {
	Space  uint64 // a number space of the database; as wide as Number, for the map's hash
	Number int64
}

// A Mode is how a key is held.
type Mode uint8

const (
	Exclusive Mode = iota // by one hold
	Shared                // by readers, of which there may be several
)

// A Config sets a table up. Its zero value is that of a table whose keys pass on
// between callers only through the source.
type Config struct {
	// Wake is called when something was queued, with the table locked. It must
	// return at once and must not call the table. Nil means that the table has no
	// source: a key that it does not know is free.
	Wake func()

	// Arrival is called, as Wake is, when a call begins to wait that is not to wait
	// for long, and there is no other. Nil: no Expire is needed.
	Arrival func()

	Now     func() time.Duration // a monotonic clock; needed
	NewHold func() *Hold         // makes the hold of a grant, with its Holder; needed

	HandOver    time.Duration // how long a key may pass between callers before it goes through the source
	YieldFor    time.Duration // how long waiting callers leave a key alone after that
	AsyncUnlock bool          // Release does not wait for the source
}

// Forever is a HandOver without end, or a time that never comes.
const Forever = time.Duration(1<<63 - 1)

// The errors with which the table itself denies a request.
var (
	ErrHeld   = errors.New("sqllock: key is held")
	ErrClosed = errors.New("sqllock: locker is closed")
	ErrLost   = errors.New("sqllock: lock was lost")
)

// A FullError reports that no key of a level was free. It matches ErrHeld.
type FullError struct{ Level int }

func (e *FullError) Error() string        { return ErrHeld.Error() }
func (e *FullError) Is(target error) bool { return target == ErrHeld }

// A Table is for many callers and the goroutines of its source. Use [New].
//
// Invariants:
//
//   - keys has a state for a key exactly while the key is not idle, a request is
//     in its line, or a group that is in use has it. So memory is bounded by holds
//     and calls, not by the keys ever seen.
//   - A request that is not decided is in the line of one group, in stacks, in
//     retries, or in a batch.
//   - A group with a line is in wanted or in polls, a look for it is under way, one
//     of its keys is in transit, or all its keys are held here. settle restores
//     this.
type Table struct {
	config Config

	mu       sync.Mutex // protects all that follows, and each State, Group and Request; never held while waiting
	keys     map[ID]*State
	groups   map[ID][]*Group // of more keys than one, by the first
	wanted   []*Group        // the next batches look for keys of these
	stacks   []*Request      // the next batches try these
	polls    map[*Group]struct{}
	sets     map[*Request]struct{} // stacks that wait
	retries  map[*Request]struct{} // those of sets that a Poll tries again
	touched  []*Group              // to settle
	arrivals list                  // that wait for the source
	arrived  time.Duration         // when the first of those came that the next batch may serve; 0: none has
	calls    uint64                // requests, and polls, so far
	attempts uint64                // at stacks, so far
	held     atomic.Int64          // keys that the source has granted and not got back
	waiting  int                   // requests that wait
	tally    Tally
	away     error // why requests have no chance now; nil: they have
	closed   error // why the table is closed; nil: it is not

	waking  bool            // a batch is being completed: callers are woken at its end
	wakes   []chan struct{} // to wake then
	owner   *Owner          // of a table without a source
	local   Batch           // of a table without a source
	spare   []*State        // for their next use; at most maxSpare
	memory  sync.Pool       // of *Request, likewise
	replies sync.Pool       // of *reply
}

// A Tally counts the requests that have ended, by their results.
type Tally struct{ Granted, Denied, Canceled, Failed uint64 }

// New returns an empty table.
func New(c Config) *Table {
	t := &Table{
		config: c, keys: make(map[ID]*State), groups: make(map[ID][]*Group), polls: make(map[*Group]struct{}),
		sets: make(map[*Request]struct{}), retries: make(map[*Request]struct{}),
	}
	t.memory.New = func() any { return &Request{done: make(chan struct{}, 1)} }
	t.replies.New = func() any { return &reply{done: make(chan struct{}, 1)} }
	if c.Wake == nil {
		t.owner = &Owner{}
	}
	return t
}

// count counts a request that ends with err. An error that only wraps that of a
// context has another reason, such as a database that is away: it failed.
func (t *Table) count(err error) {
	switch {
	case err == nil:
		t.tally.Granted++
	case errors.Is(err, ErrHeld):
		t.tally.Denied++
	case err == context.Canceled, err == context.DeadlineExceeded: //nolint:errorlint // see above
		t.tally.Canceled++
	default:
		t.tally.Failed++
	}
}

// queued tells the source that something was queued. A table without a source
// serves it at once.
func (t *Table) queued() {
	if t.config.Wake != nil {
		t.config.Wake()
	}
}

// serve serves what was queued in a table without a source. Each key that the
// table does not know is free.
func (t *Table) serve() {
	if t.owner == nil {
		return
	}
	t.retryStacks()
	for len(t.wanted)+len(t.stacks)+len(t.owner.releases) > 0 && t.prepare(t.owner, noLimits, &t.local) {
		for i := range t.local.Looks {
			l := &t.local.Looks[i]
			for k := range min(l.Want, len(l.Keys)) {
				l.Won = append(l.Won, k)
			}
		}
		for i := range t.local.Stacks {
			s := &t.local.Stacks[i]
			s.Failed = -1
			for range s.Levels {
				s.Won = append(s.Won, 0)
			}
		}
		t.complete(t.owner, &t.local, t.config.Now())
		t.settle()
	}
}
