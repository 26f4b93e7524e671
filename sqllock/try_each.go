package sqllock

import (
	"context"
	"errors"
	"slices"

	"github.com/latchkey-go/latchkey/internal/dialect"
	"github.com/latchkey-go/latchkey/internal/waiting"
)

// TryEach acquires one key of each group, or none, in one round trip. Locks[i]
// is of groups[i]. It is for several limits at once: one for a user, three for
// the user's tenant, fifty in all.
//
// If a group has no free key, TryEach returns a *[GroupError], which matches
// ErrHeld: every key of the group was seen held. Its other errors are those of
// TryLock, and ErrCapacity for more groups than WithMaxHeld allows. Without
// groups, with an empty group, with a key in two groups, or with a key of
// [Pair] it fails. The same key twice in one group counts once. The caller must
// not change groups during the call, nor the keys of a slice that it uses again.
// Slices of more than eight keys are compared with each other only when they
// are new, so a key in two of them may go unnoticed later: it is never acquired
// twice.
//
// The groups are tried in their order. Of two calls with the same groups in the
// same order one goes on, so all callers should have one order. Which key of a
// group a call gets is not defined.
//
// A call never holds a part of its groups while it waits. It does not overtake
// a caller of this process that waits for a key. With lease tables and MariaDB,
// a rejected call may hold some keys for a moment, and a second round trip
// releases them. Meanwhile other callers find these keys held.
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
	err := r.each.begin(groups, waiting.TermsOf(ctx).Beyond, &t.checked)
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
// acquired. It compares the keys of a wide group with the others only once: a
// caller that acquires many times has the same slice each time.
func (e *eachRequest) begin(groups [][]Key, beyond [][]int64, checked *checkedGroups) error {
	if len(groups) == 0 {
		return errNoGroups
	}
	total := 0
	for g, keys := range groups {
		if len(keys) == 0 {
			return errEmptyGroup
		}
		e.groups = slices.Grow(e.groups, 1)[:g+1]
		group := &e.groups[g]
		*group = eachGroup{keys: keys, width: fewCandidates, checked: checked.has(keys), later: group.later[:0], held: group.held[:0]}
		if g < len(beyond) {
			group.beyond = beyond[g]
		}
		if !group.checked {
			total += len(keys)
		}
	}
	e.numbers.reset(total)
	for g := range e.groups {
		if err := e.check(g); err != nil {
			return err
		}
	}
	for g := range e.groups {
		if !e.groups[g].checked {
			checked.add(e.groups[g].keys)
		}
	}
	return nil
}

// check returns the error for group g, unless it was checked before.
func (e *eachRequest) check(g int) error {
	if e.groups[g].checked {
		return nil
	}
	for i := range e.groups[g].keys {
		key := &e.groups[g].keys[i]
		if key.space != dialect.Bigint {
			return errPairGroups
		}
		if e.numbers.add(key.number, g) != g {
			return errTwoGroups
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
	*r = request{done: r.done, timer: r.timer, each: e, keys: r.keys[:0], states: r.states[:0]}
	for g := range e.groups {
		e.groups[g] = eachGroup{later: e.groups[g].later[:0], held: e.groups[g].held[:0]} // no caller's keys stay
	}
	e.groups, e.candidates = e.groups[:0], e.candidates[:0]
	t.eaches.Put(r)
}
