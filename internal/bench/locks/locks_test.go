package locks_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"testing"

	"github.com/latchkey-go/latchkey/internal/bench/locks"
	"github.com/latchkey-go/latchkey/internal/bench/servers"
	"github.com/latchkey-go/latchkey/internal/bound"
	"github.com/latchkey-go/latchkey/internal/pgtest"
)

var env locks.Env

func TestMain(m *testing.M) { os.Exit(run(m)) }

func run(m *testing.M) int {
	bound.Lengthen()
	s, err := servers.Start(context.Background())
	if err != nil {
		return pgtest.MainFails(err)
	}
	env = locks.Env{Postgres: s.Postgres(), Redis: s.Redis()}
	code := m.Run()
	if err := s.Close(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return code
}

// Every contender excludes: in one process and between two, as long as the lock
// is held and no longer.
func TestExclusion(t *testing.T) {
	for _, c := range locks.All() {
		if c.Name == locks.SelectPgx || c.Name == locks.SelectPQ {
			continue // not locks
		}
		t.Run(c.Name, func(t *testing.T) {
			if c.Setup == "" {
				t.Error("the report would not say how it is set up")
			}
			here, there := open(t, c), open(t, c)
			if c.Name == locks.Memory {
				there = here // it is for one process
			}
			ctx := t.Context()
			name := "a " + c.Name
			held, err := here.Acquire(ctx, name)
			if err != nil {
				t.Fatal(err)
			}
			other, err := there.Acquire(ctx, "b "+c.Name)
			if err != nil {
				t.Fatalf("another name: %v", err)
			}
			for which, l := range map[string]locks.Locks{"here": here, "there": there} {
				if _, err := l.Acquire(ctx, name); !errors.Is(err, locks.ErrBusy) {
					t.Errorf("%s, while it is held: %v, want ErrBusy", which, err)
				}
			}
			if err := held.Release(ctx); err != nil {
				t.Fatal(err)
			}
			again, err := here.Acquire(ctx, name) // an async Release is for this process alone
			if err != nil {
				t.Fatalf("after its release: %v", err)
			}
			for _, h := range []locks.Held{again, other} {
				if err := h.Release(ctx); err != nil {
					t.Error(err)
				}
			}
		})
	}
}

func open(t *testing.T, c locks.Contender) locks.Locks {
	t.Helper()
	l, err := c.Open(t.Context(), env, 8)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := l.Close(); err != nil {
			t.Error(err)
		}
	})
	return l
}

// go-redis ignores options that come too late, or that it cannot serve.
func TestFullDuplex(t *testing.T) {
	for _, c := range locks.Named("go-redis AutoPipeline", "go-redis AutoPipeline, full duplex") {
		want := c.Name == "go-redis AutoPipeline, full duplex"
		if got := locks.FullDuplex(open(t, c)); got != want {
			t.Errorf("%s: full duplex is %v, want %v", c.Name, got, want)
		}
	}
}

// The floors do what they are there for.
func TestSelects(t *testing.T) {
	for _, c := range locks.Named(locks.SelectPgx, locks.SelectPQ) {
		for _, callers := range []int{1, 8} {
			l, err := c.Open(t.Context(), env, callers)
			if err != nil {
				t.Fatal(err)
			}
			held, err := l.Acquire(t.Context(), "")
			if err == nil {
				err = held.Release(t.Context())
			}
			if err := errors.Join(err, l.Close()); err != nil {
				t.Errorf("%s, %d callers: %v", c.Name, callers, err)
			}
		}
	}
}
