package sqllock

import (
	"context"
	"errors"
	"fmt"
	"math/bits"
	"slices"

	"github.com/latchkey-go/latchkey/internal/dialect"
	"github.com/latchkey-go/latchkey/internal/waiting"
)

// A GroupError reports that a group of TryEach had no key that was free. It
// matches ErrHeld.
type GroupError struct {
	Group int // its index, from 0
}

func (e *GroupError) Error() string {
	return fmt.Sprintf("sqllock: no key of group %d is free", e.Group)
}

// Is makes errors.Is(err, ErrHeld) hold.
func (e *GroupError) Is(target error) bool { return target == ErrHeld }

// TryEach acquires one key of each group, or none. Locks[i] is of groups[i].
//
// If a group has no free key, TryEach returns a *[GroupError], which matches
// ErrHeld. Its other errors are those of TryLock.
func (s *Session) TryEach(ctx context.Context, groups [][]Key) (Locks, error) {
	return s.table.tryEach(ctx, groups)
}

// TryEach acquires one key of each group, or none, like [Session.TryEach].
func (m *Memory) TryEach(ctx context.Context, groups [][]Key) (Locks, error) {
	return m.table.tryEach(ctx, groups)
}

// Why groups cannot be acquired.
var (
	errNoGroups   = errors.New("sqllock: TryEach needs a group at least")
	errEmptyGroup = errors.New("sqllock: each group of TryEach needs a key at least")
	errTwoGroups  = errors.New("sqllock: a key is in two groups of TryEach")
	errPairGroups = errors.New("sqllock: TryEach takes keys of a Namespace or of ID, not of Pair")
)

// tryEach acquires one key of each group, or none.
func (t *keyTable) tryEach(ctx context.Context, groups [][]Key) (Locks, error) {
	if ctx.Err() != nil {
		return nil, t.fail(ended(ctx), want{})
	}
	r := t.eaches.Get().(*request)
	r.ctx = ctx
	err := r.each.begin(groups, waiting.TermsOf(ctx).Beyond)
	if err != nil {
		err = t.fail(err, want{})
	} else {
		_, err = t.submit(r)
	}
	locks := r.locks
	t.reuseRequest(r)
	return locks, err
}

// begin prepares e for groups, or returns the error for groups that cannot be
// acquired.
func (e *eachRequest) begin(groups [][]Key, beyond [][]int64) error {
	if len(groups) == 0 {
		return errNoGroups
	}
	total := 0
	for _, keys := range groups {
		total += len(keys)
	}
	e.numbers.reset(total)
	for g, keys := range groups {
		if len(keys) == 0 {
			return errEmptyGroup
		}
		for i := range keys {
			if keys[i].space != dialect.Bigint {
				return errPairGroups
			}
			if other := e.numbers.add(keys[i].number, g); other != g {
				return errTwoGroups
			}
		}
		e.groups = slices.Grow(e.groups, 1)[:g+1]
		e.groups[g] = eachGroup{keys: keys, width: len(keys), later: e.groups[g].later[:0], held: e.groups[g].held[:0]}
		if g < len(beyond) {
			e.groups[g].beyond = beyond[g]
		}
	}
	return nil
}

// reuseRequest makes the memory of r, which is decided, available to others. If
// a queue or a statement still knows r, it does not.
func (t *keyTable) reuseRequest(r *request) {
	t.mu.Lock()
	known := r.enqueued || r.each.inBatch
	t.mu.Unlock()
	if known {
		return
	}
	e := r.each
	clear(r.keys)
	*r = request{done: r.done, each: e, keys: r.keys[:0], states: r.states[:0]}
	for g := range e.groups {
		e.groups[g] = eachGroup{later: e.groups[g].later[:0], held: e.groups[g].held[:0]}
	}
	e.groups, e.candidates = e.groups[:0], e.candidates[:0]
	t.eaches.Put(r)
}

// A numberSet maps numbers to groups. Its memory is reused.
type numberSet struct {
	slots []numberOf
	shift int
}

// A numberOf is a number and the group it is in, from 1; 0 is an empty slot.
type numberOf struct {
	number int64
	group  int
}

// reset empties the set, and makes room for n numbers.
func (s *numberSet) reset(n int) {
	size := 1 << bits.Len(uint(2*n))
	if size > cap(s.slots) {
		s.slots = make([]numberOf, size)
	}
	s.slots = s.slots[:size]
	clear(s.slots)
	s.shift = 64 - bits.Len(uint(size-1))
}

// add adds number as one of group g. It returns the group that it was in
// before, or g.
func (s *numberSet) add(number int64, g int) int {
	const golden = 0x9e3779b97f4a7c15 // 2⁶⁴ divided by the golden ratio
	for i := uint64(number) * golden >> s.shift; ; i++ {
		slot := &s.slots[i&uint64(len(s.slots)-1)]
		switch {
		case slot.group == 0:
			*slot = numberOf{number, g + 1}
			return g
		case slot.number == number:
			return slot.group - 1
		}
	}
}
