package election_test

import (
	"context"
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/latchkey-go/latchkey/internal/httptesting"
	"github.com/latchkey-go/latchkey/sqllock"
	"github.com/latchkey-go/latchkey/sqllock/election"
)

func TestContextEnds(t *testing.T) {
	errFlush := errors.New("flush")
	tests := []struct {
		name  string
		held  bool // by another, all the time
		lead  func(context.Context) error
		want  []error
		terms int
	}{
		{"while waiting", true, untilEnd, []error{context.Canceled}, 0},
		{"while leading", false, untilEnd, []error{context.Canceled}, 1},
		{"while leading, nil", false, func(ctx context.Context) error { <-ctx.Done(); return nil }, []error{context.Canceled}, 1},
		{
			"while leading, and it fails", false,
			func(ctx context.Context) error { <-ctx.Done(); return errFlush },
			[]error{context.Canceled, errFlush}, 1,
		},
		{
			"while leading, and it fails because of that", false,
			func(ctx context.Context) error { <-ctx.Done(); return errors.Join(errFlush, context.Cause(ctx)) },
			[]error{context.Canceled, errFlush}, 1,
		},
		{"in a pause", false, func(context.Context) error { return errBroken }, []error{context.Canceled}, 1},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				m := sqllock.NewMemory()
				if tt.held {
					if _, err := m.TryLock(t.Context(), office); err != nil {
						t.Fatal(err)
					}
				}
				c := election.New(m, office)
				stop := campaign(t, c, tt.lead)
				synctest.Wait()
				err := stop()
				for _, want := range tt.want {
					if !errors.Is(err, want) {
						t.Errorf("Run: %v, want %v", err, want)
					}
				}
				if n := c.Status().Terms; n != tt.terms {
					t.Errorf("%d terms, want %d", n, tt.terms)
				}
				if lock, err := m.TryLock(t.Context(), office); (err == nil) == tt.held {
					t.Errorf("TryLock after Run: %v", err)
				} else if err == nil {
					_ = lock.Unlock()
				}
			})
		})
	}
}

// Goroutines that a leader has left behind stop before the key is free.
func TestContextEndsBeforeRelease(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		terms := 0
		_ = election.New(sqllock.NewMemory(), office).Run(ctx, func(term context.Context) error {
			if terms++; terms == 2 {
				cancel()
			} else {
				lock, _ := sqllock.FromContext(term)
				lock.OnEnd(func(error) {
					if term.Err() == nil {
						t.Error("the leader's context outlives its lock")
					}
				})
			}
			return nil
		})
		if terms != 2 {
			t.Errorf("%d terms, want 2", terms)
		}
	})
}

func TestPanic(t *testing.T) {
	m := sqllock.NewMemory()
	c := election.New(m, office)
	var left func() error
	func() {
		defer func() {
			if got := recover(); got != errBroken {
				t.Errorf("recovered %v, want what the leader panicked with", got)
			}
		}()
		_ = c.Run(t.Context(), func(ctx context.Context) error { left = ctx.Err; panic(errBroken) })
	}()
	if left() == nil {
		t.Error("the leader's context outlived it")
	}
	wantLeader(t, -1, c)
	lock, err := m.TryLock(t.Context(), office)
	if err != nil {
		t.Fatalf("TryLock after the panic: %v", err)
	}
	if err := lock.Unlock(); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	if err := c.Run(ctx, func(context.Context) error { cancel(); return nil }); err != context.Canceled {
		t.Errorf("Run after a panic: %v", err)
	}
}

func TestRunsOnce(t *testing.T) {
	c := election.New(sqllock.NewMemory(), office)
	ctx, cancel := context.WithCancel(t.Context())
	_ = c.Run(ctx, func(context.Context) error {
		defer cancel()
		if err := c.Run(ctx, untilEnd); err == nil || errors.Is(err, context.Canceled) {
			t.Errorf("a second Run meanwhile: %v", err)
		}
		return nil
	})
	if n := c.Status().Terms; n != 1 {
		t.Errorf("%d terms", n)
	}
}

// Resign does not take the key from a leader that is slow to stop.
func TestResignWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := sqllock.NewMemory()
		a, b := election.New(m, office), election.New(m, office)
		a.Resign() // nothing to resign from
		slow := make(chan struct{})
		stop := campaign(t, a, func(ctx context.Context) error {
			<-ctx.Done()
			if cause := context.Cause(ctx); cause != election.ErrResigned {
				t.Errorf("cause: %v", cause)
			}
			<-slow
			return nil
		})
		synctest.Wait()
		campaign(t, b, untilEnd)
		synctest.Wait()
		b.Resign()
		a.Resign()
		time.Sleep(time.Hour)
		wantLeader(t, 0, a, b)
		close(slow)
		synctest.Wait()
		wantLeader(t, 1, a, b)
		_ = stop()
	})
}

// A lockerFunc is a Locker whose Lock is a function of the test.
type lockerFunc func(ctx context.Context, key sqllock.Key) (*sqllock.Lock, error)

func (f lockerFunc) TryLock(context.Context, sqllock.Key) (*sqllock.Lock, error) {
	panic("a Campaign waits")
}

func (f lockerFunc) Lock(ctx context.Context, key sqllock.Key) (*sqllock.Lock, error) {
	return f(ctx, key)
}

// A lock that is lost as it is granted begins no term. The process stands again.
func TestLostAtTheGrant(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := sqllock.NewMemory()
		lose := sync.OnceValue(m.Lose)
		c := election.New(lockerFunc(func(ctx context.Context, key sqllock.Key) (*sqllock.Lock, error) {
			defer lose()
			return m.Lock(ctx, key)
		}), office)
		campaign(t, c, untilEnd)
		synctest.Wait()
		if s := c.Status(); s.Terms != 0 || s.Err != sqllock.ErrLost {
			t.Errorf("after the loss: %+v", s)
		}
		time.Sleep(time.Second)
		wantLeader(t, 0, c)
	})
}

// A grant that comes as the context ends begins no term.
func TestLateGrant(t *testing.T) {
	m := sqllock.NewMemory()
	ctx, cancel := context.WithCancel(t.Context())
	late := lockerFunc(func(ctx context.Context, key sqllock.Key) (*sqllock.Lock, error) {
		defer cancel()
		return m.Lock(ctx, key)
	})
	err := election.New(late, office).Run(ctx, func(context.Context) error {
		t.Error("it leads")
		return nil
	})
	if err != context.Canceled {
		t.Errorf("Run: %v", err)
	}
	if _, err := m.TryLock(t.Context(), office); err != nil {
		t.Errorf("TryLock: %v", err)
	}
}

func TestMisuse(t *testing.T) {
	for name, misuse := range map[string]func(){
		"no locker":     func() { election.New(nil, office) },
		"a nil session": func() { election.New((*sqllock.Session)(nil), office) },
		"no pause":      func() { election.WithBackoff(0, time.Second) },
		"less":          func() { election.WithBackoff(2, 1) },
		"no function":   func() { _ = election.New(sqllock.NewMemory(), office).Run(t.Context(), nil) },
	} {
		t.Run(name, func(t *testing.T) { httptesting.WantPanic(t, "election", "", misuse) })
	}
}
