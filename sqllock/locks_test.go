package sqllock_test

import (
	"context"
	"errors"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/latchkey-go/latchkey/internal/pgtest"
	"github.com/latchkey-go/latchkey/sqllock"
)

// Many callers of two Sessions request sets of keys that overlap. Each set is
// acquired as a whole, no caller blocks another for ever, and no lock remains.
func TestSetsThatCross(t *testing.T) {
	t.Parallel()
	dsn := pgtest.Database(t)
	sessions := []*sqllock.Session{session(t, "pgx", dsn), session(t, "postgres", dsn)}
	const keys = 6
	var (
		inside [keys]atomic.Int32
		wg     sync.WaitGroup
	)
	for i := range 12 {
		s := sessions[i%2]
		wg.Go(func() {
			for range 30 {
				places := rand.Perm(keys)[:2+rand.IntN(3)]
				set := make([]sqllock.Key, len(places))
				for j, n := range places {
					set[j] = sqllock.Pair(int32(n%2), int32(n))
					if n%3 == 0 {
						set[j] = sqllock.ID(int64(-n))
					}
				}
				ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
				locks, err := s.LockAll(ctx, set...)
				cancel()
				if err != nil {
					t.Errorf("LockAll: %v", err)
					return
				}
				for _, n := range places {
					if inside[n].Add(1) != 1 {
						t.Error("two callers hold one key")
					}
				}
				for _, n := range places {
					inside[n].Add(-1)
				}
				if err := locks.Unlock(); err != nil {
					t.Errorf("Unlock: %v", err)
				}
			}
		})
	}
	wg.Wait()
	if n := advisoryLocks(t, open(t, "pgx", dsn)); n != 0 {
		t.Errorf("%d locks remain", n)
	}
}

// Two callers want the same keys at the same moment, in different orders. One
// of them gets the keys, because both try the same key first.
func TestOneOfTwoSetsIsGranted(t *testing.T) {
	eachDriver(t, func(t *testing.T, driver, dsn string) {
		a, b := session(t, driver, dsn), session(t, driver, dsn)
		keys := make([]sqllock.Key, 50)
		for i := range keys {
			keys[i] = sqllock.ID(int64(i))
		}
		backwards := make([]sqllock.Key, len(keys))
		for i, k := range keys {
			backwards[len(keys)-1-i] = k
		}
		for range 100 {
			type result struct {
				locks sqllock.Locks
				err   error
			}
			results := make(chan result, 2)
			start := make(chan struct{})
			for s, set := range map[*sqllock.Session][]sqllock.Key{a: keys, b: backwards} {
				go func() {
					<-start
					locks, err := s.TryLockAll(t.Context(), set...)
					results <- result{locks, err}
				}()
			}
			close(start)
			var granted sqllock.Locks
			for range 2 {
				switch r := <-results; {
				case r.err == nil && granted != nil:
					t.Fatal("two sets of the same keys are held at once")
				case r.err == nil:
					granted = r.locks
				case !errors.Is(r.err, sqllock.ErrHeld):
					t.Fatalf("TryLockAll: %v", r.err)
				}
			}
			if granted == nil {
				t.Fatal("each of two sets has blocked the other")
			}
			if err := granted.Unlock(); err != nil {
				t.Fatalf("Unlock: %v", err)
			}
		}
	})
}

// DoAll runs the function under all keys or not at all, and releases them.
func TestDoAll(t *testing.T) {
	t.Parallel()
	keys := []sqllock.Key{sqllock.ID(1), sqllock.Pair(0, 1), sqllock.ID(2)}
	free := func(t *testing.T, m *sqllock.Memory) {
		t.Helper()
		for _, key := range keys {
			lock, err := m.TryLock(t.Context(), key)
			if err != nil {
				t.Errorf("key %d afterwards: %v", key.Int64(), err)
			}
			_ = lock.Unlock()
		}
	}
	failed := errors.New("failed")
	tests := []struct {
		name string
		fn   func(m *sqllock.Memory) error
		want []error
	}{
		{"nil", func(*sqllock.Memory) error { return nil }, nil},
		{"error", func(*sqllock.Memory) error { return failed }, []error{failed}},
		{"lost", func(m *sqllock.Memory) error { m.Lose(); return nil }, []error{sqllock.ErrLost}},
		{"lost, error", func(m *sqllock.Memory) error { m.Lose(); return failed }, []error{sqllock.ErrLost, failed}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			m := sqllock.NewMemory()
			var left context.Context
			err := sqllock.DoAll(t.Context(), m, keys, func(ctx context.Context) error {
				left = ctx
				for _, key := range keys {
					if lock, ok := sqllock.FromContext(ctx, key); !ok || lock.Key() != key {
						t.Errorf("the context does not carry the lock of key %d", key.Int64())
					}
					if _, err := m.TryLock(t.Context(), key); !errors.Is(err, sqllock.ErrHeld) {
						t.Errorf("TryLock of key %d meanwhile: %v", key.Int64(), err)
					}
				}
				return tt.fn(m)
			})
			if (err == nil) != (tt.want == nil) {
				t.Errorf("DoAll: %v", err)
			}
			for _, want := range tt.want {
				if !errors.Is(err, want) {
					t.Errorf("DoAll: %v, want %v", err, want)
				}
			}
			if left.Err() == nil {
				t.Error("the context of DoAll did not end with it")
			}
			free(t, m)
		})
	}
	t.Run("panic", func(t *testing.T) {
		m := sqllock.NewMemory()
		defer func() {
			if recover() == nil {
				t.Error("DoAll swallowed a panic")
			}
			free(t, m)
		}()
		_ = sqllock.DoAll(t.Context(), m, keys, func(context.Context) error { panic("work") })
	})
	t.Run("held", func(t *testing.T) {
		m := sqllock.NewMemory()
		lock := mustLock(t, m, keys[1])
		err := sqllock.DoAll(t.Context(), m, keys, func(context.Context) error {
			t.Error("DoAll ran without the lock")
			return nil
		})
		if !errors.Is(err, sqllock.ErrHeld) {
			t.Errorf("DoAll with a held key: %v, want ErrHeld", err)
		}
		_ = lock.Unlock()
		free(t, m)
	})
}
