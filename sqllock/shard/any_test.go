package shard_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/latchkey-go/latchkey/internal/dbtest"
	"github.com/latchkey-go/latchkey/sqllock"
	"github.com/latchkey-go/latchkey/sqllock/shard"
)

// A fakeShard is a Memory that fails with err, if that is not nil. Like a
// Session whose database is away, it fails at the end of a wait, or at once if it
// is closed.
type fakeShard struct {
	*sqllock.Memory
	err   error
	calls atomic.Int32
}

func newFakeShard(err error) *fakeShard { return &fakeShard{Memory: sqllock.NewMemory(), err: err} }

func (f *fakeShard) TryAny(ctx context.Context, keys ...sqllock.Key) (*sqllock.Lock, error) {
	f.calls.Add(1)
	if f.err != nil {
		return nil, f.err
	}
	return f.Memory.TryAny(ctx, keys...)
}

func (f *fakeShard) LockAny(ctx context.Context, keys ...sqllock.Key) (*sqllock.Lock, error) {
	switch f.err {
	case nil:
		return f.Memory.LockAny(ctx, keys...)
	case sqllock.ErrClosed:
		return nil, f.err
	}
	<-ctx.Done()
	return nil, errors.Join(f.err, ctx.Err())
}

func (f *fakeShard) Lock(ctx context.Context, key sqllock.Key) (*sqllock.Lock, error) {
	return f.LockAny(ctx, key)
}

// A plainShard takes one key at a time.
type plainShard struct{ sqllock.Locker }

func TestTryAnyErrors(t *testing.T) {
	t.Parallel()
	var (
		free, held, away     = error(nil), sqllock.ErrHeld, sqllock.ErrUnavailable
		full, pooler, closed = sqllock.ErrCapacity, sqllock.ErrNotExclusive, sqllock.ErrClosed
		strange              = errors.New("strange")
	)
	tests := []struct {
		name  string
		of    [2]error // of each shard
		want  []error  // exactly these match; none: TryAny succeeds
		calls [2]int32
	}{
		{"first free", [2]error{free, free}, nil, [2]int32{1, 0}},
		{"second free", [2]error{held, free}, nil, [2]int32{1, 1}},
		{"second free, first away", [2]error{away, free}, nil, [2]int32{1, 1}},
		{"second free, first closed", [2]error{closed, free}, nil, [2]int32{1, 1}},
		{"all held", [2]error{held, held}, []error{held}, [2]int32{1, 1}},
		{"one held, one away", [2]error{held, away}, []error{away}, [2]int32{1, 1}},
		{"one away, one held", [2]error{away, held}, []error{away}, [2]int32{1, 1}},
		{"all away", [2]error{away, away}, []error{away}, [2]int32{1, 1}},
		{"one full, one away", [2]error{full, away}, []error{full}, [2]int32{1, 1}},
		{"one away, one on a pooler", [2]error{away, pooler}, []error{pooler}, [2]int32{1, 1}},
		{"one closed, one away", [2]error{closed, away}, []error{closed}, [2]int32{1, 1}},
		{"one full, one on a pooler", [2]error{full, pooler}, []error{full, pooler}, [2]int32{1, 1}},
		{"one strange, one away", [2]error{strange, away}, []error{strange, away}, [2]int32{1, 1}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			first, second := newFakeShard(tt.of[0]), newFakeShard(tt.of[1])
			s := shard.New(first, second)
			lock, err := s.TryAny(t.Context(), keyOf(s, 0, 0), keyOf(s, 1, 0), keyOf(s, 0, 1), keyOf(s, 1, 1))
			if (err == nil) != (tt.want == nil) || (lock == nil) != (err != nil) {
				t.Fatalf("got %v, %v", lock, err)
			}
			for _, each := range []error{held, away, full, pooler, closed, strange} {
				if want := slices.Contains(tt.want, each); errors.Is(err, each) != want {
					t.Errorf("%q matches %q: %v", err, each, !want)
				}
			}
			if err != nil && strings.Contains(err.Error(), "\n") {
				t.Errorf("more than one line: %q", err)
			}
			if first.calls.Load() != tt.calls[0] || second.calls.Load() != tt.calls[1] {
				t.Errorf("%d and %d calls, want %v", first.calls.Load(), second.calls.Load(), tt.calls)
			}
			_ = lock.Unlock()
		})
	}
}

// The shard of the first key is asked first, and a shard takes the first of its
// keys that is free.
func TestTryAnyOrder(t *testing.T) {
	t.Parallel()
	for _, kind := range []struct {
		name string
		s    *shard.Locker
	}{
		{"in one call", shard.New(memories(2)...)},
		{"one by one", shard.New(plainShard{sqllock.NewMemory()}, plainShard{sqllock.NewMemory()})},
	} {
		t.Run(kind.name, func(t *testing.T) {
			t.Parallel()
			s := kind.s
			a, b, c, d := keyOf(s, 1, 0), keyOf(s, 0, 0), keyOf(s, 0, 1), keyOf(s, 1, 1)
			for _, want := range []sqllock.Key{a, d, b, c} {
				lock, err := s.TryAny(t.Context(), a, b, a, c, d)
				if err != nil || lock.Key() != want {
					t.Fatalf("got %v, %v, want %v", lock.Key(), err, want)
				}
				defer lock.Unlock()
			}
			if _, err := s.TryAny(t.Context(), a, b, c, d); err != sqllock.ErrHeld {
				t.Errorf("with none free: %v, want ErrHeld", err)
			}
		})
	}
}

func TestAnyNeedsKeys(t *testing.T) {
	t.Parallel()
	s := shard.New(memories(2)...)
	for name, take := range map[string]func(context.Context, ...sqllock.Key) (*sqllock.Lock, error){"TryAny": s.TryAny, "LockAny": s.LockAny} {
		if _, err := take(t.Context()); err == nil || errors.Is(err, sqllock.ErrHeld) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// LockAny waits on all shards and takes the key that is released first. The
// caller then waits on no other shard.
func TestLockAnyWaits(t *testing.T) {
	t.Parallel()
	for _, kind := range []struct {
		name string
		make func() []sqllock.Locker
	}{
		{"in one call", func() []sqllock.Locker { return memories(2) }},
		{"one by one", func() []sqllock.Locker {
			return []sqllock.Locker{plainShard{sqllock.NewMemory()}, plainShard{sqllock.NewMemory()}}
		}},
		{"one away", func() []sqllock.Locker { return append(memories(2), newFakeShard(sqllock.ErrUnavailable)) }},
		{"one fails at once", func() []sqllock.Locker { return append(memories(2), newFakeShard(sqllock.ErrClosed)) }},
	} {
		for freed := range 4 {
			t.Run(kind.name, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					lockers := kind.make()
					s := shard.New(lockers...)
					keys := []sqllock.Key{keyOf(s, 0, 0), keyOf(s, 1, 0), keyOf(s, 0, 1), keyOf(s, 1, 1)}
					locks := make([]*sqllock.Lock, len(keys))
					for i, key := range keys {
						locks[i] = dbtest.Lock(t, s, key)
					}
					if len(lockers) == 3 {
						keys = append(keys, keyOf(s, 2, 0))
					}
					time.AfterFunc(time.Second, func() { _ = locks[freed].Unlock() })
					began := time.Now()
					lock, err := s.LockAny(t.Context(), keys...)
					if err != nil || lock.Key() != keys[freed] || lock.Err() != nil {
						t.Fatalf("got %v, %v, want the key that was given back", lock.Key(), err)
					}
					if waited := time.Since(began); waited != time.Second {
						t.Errorf("waited %v", waited)
					}
					for i, l := range locks {
						if i != freed {
							_ = l.Unlock()
							_ = dbtest.Lock(t, s, keys[i]).Unlock() // a waiter that is left would have it
						}
					}
					_ = lock.Unlock()
				})
			})
		}
	}
}

func TestLockAnyErrors(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name  string
		first sqllock.Locker // the other is held
		also  error          // in addition to ctx's error
	}{
		{"all held", nil, nil},
		{"one away", newFakeShard(sqllock.ErrUnavailable), sqllock.ErrUnavailable},
		{"one away, one key at a time", plainShard{newFakeShard(sqllock.ErrUnavailable)}, sqllock.ErrUnavailable},
		{"one with another secret", newFakeShard(sqllock.ErrNotExclusive), sqllock.ErrNotExclusive},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				first := tt.first
				if first == nil {
					first = sqllock.NewMemory()
				}
				s := shard.New(first, sqllock.NewMemory())
				keys := []sqllock.Key{keyOf(s, 0, 0), keyOf(s, 1, 0)}
				for _, key := range keys {
					if lock, err := s.TryLock(t.Context(), key); err == nil {
						defer lock.Unlock()
					}
				}
				ctx, cancel := context.WithTimeout(t.Context(), time.Second)
				defer cancel()
				_, err := s.LockAny(ctx, keys...)
				if !errors.Is(err, context.DeadlineExceeded) {
					t.Errorf("%v, want the context's error", err)
				}
				for _, each := range []error{sqllock.ErrUnavailable, sqllock.ErrNotExclusive, sqllock.ErrHeld} {
					if errors.Is(err, each) != (each == tt.also) {
						t.Errorf("%q matches %q: %v", err, each, each != tt.also)
					}
				}
			})
		})
	}
}

// If several shards grant at the same moment, one lock is returned. The others
// are released when LockAny returns.
func TestLockAnySecondGrant(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		const shards = 4
		var late [shards]lateShard
		lockers := make([]sqllock.Locker, shards)
		for i := range late {
			late[i].Memory = sqllock.NewMemory()
			lockers[i] = plainShard{late[i]}
		}
		s := shard.New(lockers...)
		keys := make([]sqllock.Key, shards)
		for i := range keys {
			keys[i] = keyOf(s, i, 0)
		}
		lock, err := s.LockAny(t.Context(), keys...)
		if err != nil || lock.Err() != nil {
			t.Fatal(err)
		}
		for i, key := range keys {
			other, err := late[i].TryLock(t.Context(), key)
			if (err == nil) == (key == lock.Key()) {
				t.Errorf("key %d of %d, won %v: %v", i, shards, key == lock.Key(), err)
			}
			_ = other.Unlock()
		}
		if cause := context.Cause(lock.Context()); cause != nil {
			t.Errorf("the winner's context has ended: %v", cause)
		}
		_ = lock.Unlock()
	})
}

// A lateShard grants after a second, even if the caller has given up. A grant
// may be under way at that moment.
type lateShard struct{ *sqllock.Memory }

func (l lateShard) Lock(ctx context.Context, key sqllock.Key) (*sqllock.Lock, error) {
	time.Sleep(time.Second)
	return l.TryLock(context.WithoutCancel(ctx), key)
}
