package ratelimit_test

import (
	"testing"

	"github.com/latchkey-go/latchkey/ratelimit"
	"github.com/latchkey-go/latchkey/sqllock"
)

// fewestAllocs is the number of f's allocations when its pools have what it
// needs: the race detector empties them at random.
func fewestAllocs(f func()) float64 {
	fewest := testing.AllocsPerRun(1, f)
	for range 50 {
		fewest = min(fewest, testing.AllocsPerRun(1, f))
	}
	return fewest
}

// A Limiter adds few allocations to those of the locker, for each request.
func TestAllocations(t *testing.T) {
	ctx := t.Context()
	locks := sqllock.NewMemory()
	ns := sqllock.Namespace("export")
	key := fewestAllocs(func() { ns.Key("ada") })
	bare := fewestAllocs(func() {
		lock, err := locks.TryLock(ctx, ns.Key("ada"))
		if err != nil {
			t.Fatal(err)
		}
		_ = lock.Unlock()
	})
	l := ratelimit.OneAtATime(locks, "export")
	limited := fewestAllocs(func() {
		lock, err := l.Acquire(ctx, "ada")
		if err != nil {
			t.Fatal(err)
		}
		_ = lock.Unlock()
	})
	if limited > bare+5 { // the stack and its place, the hook, its place in the lock, and the hold
		t.Errorf("%v allocations, the locker alone %v: want 5 more at the most", limited, bare)
	}

	lock := must(t, l, "ada")
	defer lock.Unlock()
	if refused := fewestAllocs(func() { _, _ = l.Acquire(ctx, "ada") }); refused > key+3 {
		t.Errorf("%v allocations for a rejection, the key alone %v: want 3 more, of the stack, its place and the error", refused, key)
	}
}

func BenchmarkAcquire(b *testing.B) {
	l := ratelimit.OneAtATime(sqllock.NewMemory(), "export")
	b.ReportAllocs()
	for b.Loop() {
		lock, err := l.Acquire(b.Context(), "ada")
		if err != nil {
			b.Fatal(err)
		}
		_ = lock.Unlock()
	}
}

// BenchmarkRefuse is a request that is rejected in the process.
func BenchmarkRefuse(b *testing.B) {
	l := ratelimit.OneAtATime(sqllock.NewMemory(), "export")
	lock, err := l.Acquire(b.Context(), "ada")
	if err != nil {
		b.Fatal(err)
	}
	defer lock.Unlock()
	b.ReportAllocs()
	for b.Loop() {
		_, _ = l.Acquire(b.Context(), "ada")
	}
}
