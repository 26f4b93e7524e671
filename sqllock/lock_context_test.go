package sqllock_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/latchkey-go/latchkey/sqllock"
)

// A bound context ends with the first of several causes. It reports the same
// error and cause whether a caller waited for its end or not.
func TestBoundContextEnds(t *testing.T) {
	t.Parallel()
	stop, parentCause := errors.New("stop"), errors.New("parent")
	type scene struct {
		lock         *sqllock.Lock
		cancel       context.CancelFunc // of Bind
		cancelParent context.CancelCauseFunc
	}
	tests := []struct {
		name  string
		end   func(s scene)
		cause error // nil: it has not ended
	}{
		{"nothing", func(scene) {}, nil},
		{"unlocked", func(s scene) { _ = s.lock.Unlock() }, nil},
		{"cancelled", func(s scene) { s.cancel() }, context.Canceled},
		{"the lock's work cancelled", func(s scene) { s.lock.Cancel(stop) }, stop},
		{"the parent ended", func(s scene) { s.cancelParent(parentCause) }, parentCause},
		{"cancelled, then the parent ended", func(s scene) { s.cancel(); s.cancelParent(parentCause) }, context.Canceled},
		{"the parent ended, then cancelled", func(s scene) { s.cancelParent(parentCause); s.cancel() }, parentCause},
		{"the lock's work cancelled, then the parent ended", func(s scene) { s.lock.Cancel(stop); s.cancelParent(parentCause) }, stop},
		{"the parent ended, then the lock's work", func(s scene) { s.cancelParent(parentCause); s.lock.Cancel(stop) }, parentCause},
		{"the lock's work, then cancelled", func(s scene) { s.lock.Cancel(stop); s.cancel() }, stop},
	}
	// What a handler may have done with the context before it ends.
	used := map[string]func(ctx context.Context) (ended func() bool){
		"no caller waits":  func(context.Context) func() bool { return nil },
		"Done was taken":   func(ctx context.Context) func() bool { done := ctx.Done(); return func() bool { return closed(done) } },
		"a child was made": func(ctx context.Context) func() bool { return endedChild(ctx) },
		"Err was called":   func(ctx context.Context) func() bool { _ = ctx.Err(); return nil },
		"Cause was called": func(ctx context.Context) func() bool { _ = context.Cause(ctx); return nil },
	}
	for _, tt := range tests {
		for use, prepare := range used {
			parent, cancelParent := context.WithCancelCause(context.WithValue(t.Context(), valueKey{}, "value"))
			lock := mustLock(t, sqllock.NewMemory(), sqllock.ID(1))
			first, cancelFirst := lock.Bind(t.Context()) // so that the context under test is not the only one
			ctx, cancel := lock.Bind(parent)
			ended := prepare(ctx)
			tt.end(scene{lock, cancel, cancelParent})

			var wantErr error
			if tt.cause != nil {
				wantErr = context.Canceled
			}
			if got := ctx.Err(); got != wantErr {
				t.Errorf("%s, %s: Err is %v, want %v", tt.name, use, got, wantErr)
			}
			if got := context.Cause(ctx); got != tt.cause {
				t.Errorf("%s, %s: cause %v, want %v", tt.name, use, got, tt.cause)
			}
			if got := closed(ctx.Done()); got != (tt.cause != nil) {
				t.Errorf("%s, %s: Done is closed: %v", tt.name, use, got)
			}
			if ended != nil && ended() != (tt.cause != nil) {
				t.Errorf("%s, %s: a child context did not end with it", tt.name, use)
			}
			if ctx.Value(valueKey{}) != "value" {
				t.Errorf("%s, %s: the parent's value is missing", tt.name, use)
			}
			cancel()
			cancelFirst()
			cancelParent(nil)
			_ = lock.Unlock()
			if ctx.Err() == nil || first.Err() == nil {
				t.Errorf("%s, %s: it has not ended after cancel", tt.name, use)
			}
		}
	}
}

// valueKey is a key for values of these tests.
type valueKey struct{}

func closed(done <-chan struct{}) bool {
	select {
	case <-done:
		return true
	default:
		return false
	}
}

// endedChild derives a context from ctx, and returns a function that reports
// whether it ended with ctx.
func endedChild(ctx context.Context) func() bool {
	child, cancel := context.WithCancel(ctx)
	return func() bool {
		defer cancel()
		return child.Err() != nil && context.Cause(child) == context.Cause(ctx)
	}
}

// The deadline of the request is also the deadline of the bound context. The
// error stays the same.
func TestBoundContextDeadline(t *testing.T) {
	t.Parallel()
	lock := mustLock(t, sqllock.NewMemory(), sqllock.ID(1))
	defer lock.Unlock()
	at := time.Now()
	parent, cancelParent := context.WithDeadline(t.Context(), at)
	defer cancelParent()
	ctx, cancel := lock.Bind(parent)
	if got, ok := ctx.Deadline(); !ok || !got.Equal(at) {
		t.Errorf("Deadline: %v, %v", got, ok)
	}
	for range 2 {
		if err := ctx.Err(); err != context.DeadlineExceeded {
			t.Errorf("Err: %v, want DeadlineExceeded", err)
		}
		cancel()
	}
}

// The end of a bound context wakes every goroutine that waits for it, in
// whatever order they began.
func TestBoundContextRace(t *testing.T) {
	t.Parallel()
	stop := errors.New("stop")
	for range 2000 {
		lock := mustLock(t, sqllock.NewMemory(), sqllock.ID(1))
		ctx, cancel := lock.Bind(t.Context())
		woken := make(chan error)
		go func() {
			<-ctx.Done()
			woken <- context.Cause(ctx)
		}()
		go lock.Cancel(stop)
		if cause := <-woken; cause != stop {
			t.Fatalf("cause: %v", cause)
		}
		cancel()
		_ = lock.Unlock()
	}
}
