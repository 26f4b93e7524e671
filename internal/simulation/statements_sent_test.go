package simulation

import (
	"context"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/latchkey-go/latchkey/sqllock"
)

// While one statement is under way, requests and releases queue up. They go
// together in the next statement.
func TestGroupCommit(t *testing.T) {
	scripted(t, func(t *testing.T, s *sqllock.Session, st *stage) {
		c := st.conn(0)
		first := mustTry(t, s, sqllock.ID(1))
		hook, resume := hold(t)
		c.hooks(hook, nil)
		calls := []<-chan called{beginTry(background, s, sqllock.ID(2))}
		unlocked := beginUnlock(first)
		for i := range int64(50) {
			calls = append(calls, beginTry(background, s, sqllock.ID(10+i)))
		}
		for i := range int64(2) {
			calls = append(calls, begin(func() (sqllock.Locks, error) { return one(s.TryAny(background, ids(100+2*i, 101+2*i)...)) }))
		}
		again := granted(t, "TryLock of a key whose release waits", beginTry(background, s, sqllock.ID(1)))
		wantReturned(t, "the Unlock that was taken over", unlocked, nil)
		released := beginUnlock(again)
		resume()
		for _, call := range calls {
			wantReturned(t, "TryLock", call, nil)
		}
		wantReturned(t, "Unlock", released, nil)
		batches := c.sent()
		if len(batches) != 3 {
			t.Fatalf("%d statements, want 3: %v", len(batches), batches)
		}
		if last := batches[2]; len(last.Try) != 50 || len(last.Looks) != 2 || len(last.Release) != 1 {
			t.Errorf("the third statement took %d, looked for %d and released %d, want 50, 2 and 1", len(last.Try), len(last.Looks), len(last.Release))
		}
	})
}

// What does not fit into one statement goes into the next, also keys of one call.
// A set that is larger than any statement is denied.
func TestRoomOfAStatement(t *testing.T) {
	script{room: 4}.run(t, func(t *testing.T, s *sqllock.Session, st *stage) {
		c := st.conn(0)
		hook, resume := hold(t)
		c.hooks(hook, nil)
		st.steal(sqllock.ID(200))
		st.steal(sqllock.ID(201))
		busy := ids(200, 201, 202, 203, 204, 205)
		for _, k := range busy {
			st.steal(k)
		}
		calls := []<-chan called{beginTry(background, s, sqllock.ID(99))}
		for i := range int64(3) {
			calls = append(calls, begin(func() (sqllock.Locks, error) { return one(s.TryAny(background, ids(10*i, 10*i+1, 10*i+2)...)) }))
		}
		for i := range int64(6) {
			calls = append(calls, beginTry(background, s, sqllock.ID(100+i)))
		}
		calls = append(calls, begin(func() (sqllock.Locks, error) { return one(s.TryAny(background, append(busy, sqllock.ID(300))...)) }))
		full := begin(func() (sqllock.Locks, error) { return one(s.TryAny(background, busy...)) })
		set := begin(func() (sqllock.Locks, error) { return s.TryLockAll(background, ids(51, 52, 53, 54, 55)...) })
		resume()
		for _, call := range calls {
			wantReturned(t, "TryLock or TryAny", call, nil)
		}
		wantReturned(t, "TryAny of six keys that are held", full, sqllock.ErrHeld)
		wantReturned(t, "a set of five", set, sqllock.ErrCapacity)
		for i, b := range c.sent() {
			if n := b.Keys(); n > 4 {
				t.Errorf("statement %d carries %d keys, of 4", i, n)
			}
		}
	})
}

// An idle Session sends one statement in each heartbeat. Other statements count
// as heartbeats.
func TestHeartbeat(t *testing.T) {
	scripted(t, func(t *testing.T, s *sqllock.Session, st *stage) {
		c := st.conn(0)
		time.Sleep(time.Minute)
		idle := c.statements()
		if idle < 29 || idle > 30 {
			t.Errorf("%d heartbeats in an idle minute, want 30", idle)
		}
		for range 60 {
			mustUnlock(t, mustTry(t, s, sqllock.ID(1)))
			time.Sleep(time.Second)
		}
		if n := c.statements() - idle; n > 121 {
			t.Errorf("%d statements for 120 of traffic", n)
		}
		lock := mustTry(t, s, sqllock.ID(1))
		time.Sleep(time.Hour)
		wantErr(t, "Err after an idle hour", lock.Err(), nil)
	}, sqllock.WithHeartbeat(2*time.Second))
}

// A waiter gets a key that another process gives back, also if statements of other
// callers follow each other without a pause.
func TestPollsUnderTraffic(t *testing.T) {
	scripted(t, func(t *testing.T, s *sqllock.Session, st *stage) {
		st.conn(0).hooks(func() error { time.Sleep(3 * time.Millisecond); return nil }, nil)
		st.steal(sqllock.ID(1))
		ctx, stop := context.WithCancel(t.Context())
		var traffic sync.WaitGroup
		defer traffic.Wait()
		defer stop()
		traffic.Go(func() {
			for i := int64(10); ctx.Err() == nil; i++ {
				traffic.Go(func() {
					if lock, err := s.TryLock(background, sqllock.ID(i)); err == nil {
						_ = lock.Unlock()
					}
				})
				time.Sleep(time.Millisecond)
			}
		})
		waits := beginLock(background, s, sqllock.ID(1))
		time.Sleep(time.Second)
		st.giveUp(sqllock.ID(1))
		time.Sleep(100 * time.Millisecond)
		mustUnlock(t, granted(t, "Lock of a key that is free", waits))
	})
}

// A key that stays busy is tried again after 24 to 48 ms, once the pauses have
// grown.
func TestPollsOfABusyKey(t *testing.T) {
	scripted(t, func(t *testing.T, s *sqllock.Session, st *stage) {
		st.steal(sqllock.ID(1))
		waits := beginLock(background, s, sqllock.ID(1))
		time.Sleep(10 * time.Second)
		if n := len(st.conn(0).sent()); n < 10_000/48 || n > 10_000/24 {
			t.Errorf("%d polls in ten seconds", n)
		}
		st.giveUp(sqllock.ID(1))
		mustUnlock(t, granted(t, "Lock", after(pollMost, waits)))
	})
}

// New callers for busy keys have their first try at once. They do not make the
// others poll more than fifty times a second for long.
func TestPollsUnderArrivals(t *testing.T) {
	scripted(t, func(t *testing.T, s *sqllock.Session, st *stage) {
		ctx := t.Context()
		for i := range int64(2000) {
			st.steal(sqllock.ID(i))
			go func() { _, _ = s.Lock(ctx, sqllock.ID(i)) }()
			time.Sleep(5 * time.Millisecond)
		}
		polls := 0
		for _, b := range st.conn(0).sent() {
			if len(b.Try) > 1 {
				polls++
			}
		}
		if polls > 520 {
			t.Errorf("%d polls in ten seconds", polls)
		}
	})
}

// twoConnections takes locks on two connections of a Session with two locks for
// each: ID(0) and ID(1) on the first, and ID(2) and ID(3) on the second.
func twoConnections(t *testing.T, s *sqllock.Session) (locks sqllock.Locks) {
	t.Helper()
	for i := range int64(3) {
		locks = append(locks, mustTry(t, s, sqllock.ID(i)))
		synctest.Wait()
	}
	if got := s.Stats().Connections; got != 2 {
		t.Fatalf("%d connections, want 2", got)
	}
	return locks
}
