package simulation

import (
	"context"
	"testing"
	"testing/synctest"

	"github.com/latchkey-go/latchkey/sqllock"
)

// Locks that end together have all ended before any holder is told, and so have
// all their contexts. A holder of several does not give one back that is lost.
// Done shows that: unlike Err, it does not look at the lock.
func TestLocksEndTogether(t *testing.T) {
	for name, want := range map[string]error{"loss": sqllock.ErrLost, "Close": sqllock.ErrClosed} {
		t.Run(name, func(t *testing.T) {
			scripted(t, func(t *testing.T, s *sqllock.Session, st *stage) {
				var (
					locks    sqllock.Locks
					contexts []context.Context
					told     int
				)
				for i := range int64(8) {
					lock := mustTry(t, s, sqllock.ID(i))
					bound, cancel := lock.Bind(background)
					defer cancel()
					locks, contexts = append(locks, lock), append(contexts, bound, lock.Context())
				}
				for i, lock := range locks {
					lock.OnEnd(func(cause error) {
						told++
						wantErr(t, "the cause for a hook", cause, want)
						for _, ctx := range contexts {
							select {
							case <-ctx.Done():
								wantErr(t, "the cause of a context", context.Cause(ctx), want)
							default:
								t.Error("a hook is called, and a context has not ended")
							}
						}
						wantErr(t, "Unlock of another lock", locks[(i+1)%len(locks)].Unlock(), sqllock.ErrLost)
					})
				}
				if name == "loss" {
					st.conn(0).hooks(nil, fail(errGone))
					wantErr(t, "TryLock whose reply was lost", second(s.TryLock(background, sqllock.ID(100))), sqllock.ErrUnavailable)
				} else if err := s.Close(); err != nil {
					t.Fatal(err)
				}
				synctest.Wait()
				if told != len(locks) {
					t.Errorf("%d hooks were called, want %d", told, len(locks))
				}
			})
		})
	}
}

// Contexts of two locks, and a child of one, end with either lock.
func TestContextsOfSeveralLocks(t *testing.T) {
	scripted(t, func(t *testing.T, s *sqllock.Session, st *stage) {
		lock := mustTry(t, s, sqllock.ID(1))
		another, err := sqllock.NewMemory().TryLock(background, sqllock.ID(2))
		if err != nil {
			t.Fatal(err)
		}
		var contexts []context.Context // the lost lock is the outer one, and the inner one
		for _, set := range []sqllock.Locks{{another, lock}, {lock, another}, {lock}} {
			bound, cancel := set.Bind(background)
			defer cancel()
			child, cancelChild := context.WithCancel(bound)
			defer cancelChild()
			contexts = append(contexts, bound, child)
		}
		st.link.asleep.Add(int64(trust))
		for i, ctx := range contexts {
			if i%2 == 0 && ctx.Err() != context.Canceled { // asked before any timer has fired
				t.Errorf("context %d: Err is %v", i, ctx.Err())
			}
			wantErr(t, "the cause", context.Cause(ctx), sqllock.ErrLost)
		}
		wantErr(t, "Err of the other lock", another.Err(), nil)
	})
}
