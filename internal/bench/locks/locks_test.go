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
	env = locks.Env{Postgres: s.Postgres, Redis: s.Redis.Addr}
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
		t.Run(c.Name, func(t *testing.T) {
			here, there := open(t, c), open(t, c)
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
