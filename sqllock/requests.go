package sqllock

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/latchkey-go/latchkey/internal/keytable"
)

// How the calls of all lockers become requests of a key table.

// id returns the key as the key table knows it.
func (k *Key) id() keytable.ID { return keytable.ID{Space: uint64(k.space), Number: k.number} }

// acquire acquires key.
func (hm *home) acquire(ctx context.Context, w keytable.Want, key Key) (*Lock, error) {
	w.Label = string(key.namespace)
	h, err := hm.table.Acquire(ctx, w, key.id())
	if err != nil {
		return nil, callError(ctx, err)
	}
	return hm.lockOf(ctx, h, key), nil
}

// acquireAny acquires one of keys. If they are few, they are preferred in
// their order.
func (hm *home) acquireAny(ctx context.Context, w keytable.Want, keys []Key) (*Lock, error) {
	if len(keys) == 0 {
		hm.table.Count(errNoKeys)
		return nil, errNoKeys
	}
	w.Label = string(keys[0].namespace)
	h, err := hm.table.AcquireAny(ctx, w, idsOf(keys))
	if err != nil {
		return nil, callError(ctx, err)
	}
	id := h.ID()
	i := slices.IndexFunc(keys, func(k Key) bool { return k.id() == id })
	return hm.lockOf(ctx, h, keys[i]), nil
}

// acquireAll acquires all of keys or none. It sorts them, since one order of the
// keys in all calls keeps sets from rejecting each other.
func (hm *home) acquireAll(ctx context.Context, w keytable.Want, keys []Key) (Locks, error) {
	distinct := slices.Clone(keys)
	slices.SortFunc(distinct, func(a, b Key) int {
		return cmp.Or(cmp.Compare(a.space, b.space), cmp.Compare(a.number, b.number))
	})
	distinct = slices.CompactFunc(distinct, func(a, b Key) bool { return a.id() == b.id() })
	if len(distinct) == 0 {
		hm.table.Count(errNoKeys)
		return nil, errNoKeys
	}
	groups := make([][]Key, len(distinct))
	for i := range groups {
		groups[i] = distinct[i : i+1]
	}
	locks, err := hm.acquireEach(ctx, w, groups)
	var full *keytable.FullError
	if errors.As(err, &full) {
		return nil, ErrHeld
	}
	return locks, err
}

// acquireEach acquires one key of each group, or none. Groups never change.
func (hm *home) acquireEach(ctx context.Context, w keytable.Want, groups [][]Key) (Locks, error) {
	levels := make([]keytable.Keys, len(groups))
	for i, keys := range groups {
		levels[i] = idsOf(keys)
		levels[i].Of = &keys[0]
	}
	w.Label = string(groups[0][0].namespace)
	holds, err := hm.table.AcquireEach(ctx, w, levels)
	if err != nil {
		return nil, callError(ctx, err)
	}
	locks := make(Locks, len(holds))
	for i, h := range holds {
		id := h.ID()
		j := slices.IndexFunc(groups[i], func(k Key) bool { return k.id() == id })
		locks[i] = hm.lockOf(ctx, h, groups[i][j])
	}
	return locks, nil
}

// idsOf returns keys as the key table knows them.
func idsOf(keys []Key) keytable.Keys {
	return keytable.Keys{N: len(keys), At: func(i int) keytable.ID { return keys[i].id() }}
}

// callError returns err of a call with ctx, with the loss of a lock that has
// ended ctx.
func callError(ctx context.Context, err error) error {
	if ctx.Err() == nil || !errors.Is(err, ctx.Err()) {
		return err
	}
	if cause := context.Cause(ctx); errors.Is(cause, ErrLost) || errors.Is(cause, ErrClosed) { // of the lock's Session
		return fmt.Errorf("%w: %w", ErrLost, err)
	}
	return err
}
