package sqllock

import (
	"context"
	"errors"
	"testing"

	"github.com/latchkey-go/latchkey/internal/keytable"
	"github.com/latchkey-go/latchkey/internal/session"
)

// An expired lifeline belongs to a connection whose loss another goroutine is
// about to announce.
type expired struct {
	announce func() // nil: LoseLease does nothing
}

func (*expired) Expired() bool { return true }
func (*expired) Over() bool    { return true }

func (e *expired) LoseLease() {
	if e.announce != nil {
		e.announce()
	}
}

// expiredLock returns a lock whose lease has passed. LoseLease announces the loss
// if announced is true, and does nothing otherwise.
func expiredLock(t *testing.T, announced bool) *Lock {
	t.Helper()
	woken := make(chan struct{}, 8)
	hm := home{table: keytable.New(keytable.Config{Wake: func() { woken <- struct{}{} }, Now: session.Now, NewHold: newHold})}
	go func() {
		<-woken
		var b keytable.Batch
		life := new(expired)
		owner := &keytable.Owner{Life: life}
		if announced {
			life.announce = func() { hm.table.Lose(owner, &b, ErrLost) }
		}
		hm.table.Prepare(owner, keytable.Limits{Keys: 1, Grants: 1, Most: 1}, &b)
		b.Looks[0].Won = append(b.Looks[0].Won, 0)
		hm.table.Complete(owner, &b, session.Now())
	}()
	lock, err := hm.acquire(t.Context(), keytable.Want{}, ID(1))
	if err != nil {
		t.Fatal(err)
	}
	return lock
}

// Unlock after the lease reports the loss, though the goroutine that announces
// it has not come to it.
func TestUnlockAfterTheLease(t *testing.T) {
	t.Parallel()
	if err := expiredLock(t, true).Unlock(); !errors.Is(err, ErrLost) {
		t.Errorf("Unlock: %v, want ErrLost", err)
	}
}

// The context of a lock has ended as soon as Lock.Err reports the loss. The
// goroutine that announces the loss need not have come to it.
func TestContextEndsWithItsLock(t *testing.T) {
	t.Parallel()
	lock := expiredLock(t, false)
	bound, cancel := lock.Bind(t.Context())
	defer cancel()
	child, cancelChild := context.WithCancel(bound)
	defer cancelChild()
	for name, ctx := range map[string]context.Context{"Context": lock.Context(), "Bind": bound} {
		if err := ctx.Err(); err == nil || !errors.Is(context.Cause(ctx), ErrLost) {
			t.Errorf("%s: Err is %v, with the cause %v, after the lease", name, err, context.Cause(ctx))
		}
	}
	if child.Err() == nil {
		t.Error("a child context has not ended")
	}
}

// locked returns locks of n keys of a Memory.
func locked(t *testing.T, m *Memory, n int64) (locks Locks) {
	t.Helper()
	for i := range n {
		lock, err := m.TryLock(t.Context(), ID(i))
		if err != nil {
			t.Fatal(err)
		}
		locks = append(locks, lock)
	}
	return locks
}

// Bind after the loss returns a context that has ended, and after Unlock one that
// has not.
func TestBindAfterTheEnd(t *testing.T) {
	t.Parallel()
	m := NewMemory()
	locks := locked(t, m, 2)
	if err := locks[0].Unlock(); err != nil {
		t.Fatal(err)
	}
	m.Lose()
	for i, want := range []error{nil, ErrLost} {
		bound, cancel := locks[i].Bind(t.Context())
		defer cancel()
		select {
		case <-bound.Done():
			if cause := context.Cause(bound); cause != want {
				t.Errorf("it has ended by %v, want %v", cause, want)
			}
		default:
			if want != nil {
				t.Errorf("it has not ended by %v", want)
			}
		}
	}
}

// A lock forgets contexts that are not bound any more.
func TestUnbind(t *testing.T) {
	t.Parallel()
	lock := locked(t, NewMemory(), 1)[0]
	for range 2 {
		_, cancel := lock.Bind(t.Context())
		cancel()
	}
	a := lock.attached()
	defer a.mu.Unlock()
	if n := len(a.bound); n > 0 {
		t.Errorf("%d contexts are bound", n)
	}
}

// Locks that are bound together share a name, also if one was bound alone before.
func TestNameOfBoundLocks(t *testing.T) {
	t.Parallel()
	locks := locked(t, NewMemory(), 3)
	locks[2].SetName("its own")
	for _, together := range []Locks{locks[:1], append(locks[:3:3], nil)} {
		_, cancel := together.Bind(t.Context())
		defer cancel()
	}
	locks[1].SetName("all")
	for i, want := range []string{"all", "all", "its own"} {
		if got := (*holder)(locks[i]).Name(); got != want {
			t.Errorf("lock %d is named %q, want %q", i, got, want)
		}
	}
}

// Only the error of a context has the loss in it that has ended the context.
func TestCallError(t *testing.T) {
	t.Parallel()
	lost, cancel := context.WithCancelCause(t.Context())
	cancel(ErrLost)
	for _, err := range []error{ErrHeld, context.Canceled} {
		if got := callError(lost, err); !errors.Is(got, err) || errors.Is(got, ErrLost) != (err == context.Canceled) {
			t.Errorf("%v becomes %v", err, got)
		}
	}
}

// The error of a call on a transaction contains the driver's, and what has ended
// the context of the call.
func TestInContext(t *testing.T) {
	t.Parallel()
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	cancelled := errors.New("the server cancelled the statement")
	for _, tt := range []struct {
		ctx  context.Context
		err  error
		want string
		is   []error
	}{
		{t.Context(), context.Canceled, "context canceled", []error{context.Canceled}}, // of the transaction's own context
		{t.Context(), cancelled, cancelled.Error(), []error{cancelled}},
		{ended, context.Canceled, "context canceled", []error{context.Canceled}},
		{ended, cancelled, "context canceled: " + cancelled.Error(), []error{cancelled, context.Canceled}},
		{ended, ErrHeld, ErrHeld.Error(), []error{ErrHeld}},
	} {
		got := inContext(tt.ctx, tt.err)
		if got.Error() != tt.want {
			t.Errorf("%v becomes %v, want %s", tt.err, got, tt.want)
		}
		for _, is := range tt.is {
			if !errors.Is(got, is) {
				t.Errorf("%v becomes %v, without %v", tt.err, got, is)
			}
		}
	}
	if err := inContext(ended, nil); err != nil {
		t.Errorf("no error becomes %v", err)
	}
}
