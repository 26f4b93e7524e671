package sqllock

import (
	"context"
	"maps"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/latchkey-go/latchkey/internal/dialect"
)

// figures are what an Observer was told, added up.
type figures struct {
	mu        sync.Mutex // protects what follows
	exchanges uint64
	keys      int
	time      time.Duration
	connected int
	lossesBy  map[string]uint64
	locksLost uint64
}

func (f *figures) observer() Observer {
	return Observer{
		Exchanged: func(took time.Duration, keys int) {
			f.add(func() { f.exchanges, f.keys, f.time = f.exchanges+1, f.keys+keys, f.time+took })
		},
		Connected: func() { f.add(func() { f.connected++ }) },
		Lost: func(cause string, locks int) {
			f.add(func() {
				f.lossesBy[cause]++
				f.locksLost += uint64(locks)
			})
		},
	}
}

func (f *figures) add(do func()) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.lossesBy == nil {
		f.lossesBy = map[string]uint64{"lease": 0, "connection": 0, "not_exclusive": 0, "lock_missing": 0}
	}
	do()
}

// agree reports where stats are not the sums of what the Observer was told.
func (f *figures) agree(t *testing.T, stats Stats) {
	t.Helper()
	f.add(func() {
		if f.exchanges != stats.Exchanges || f.exchanges != stats.ExchangeTime.Count || f.exchanges != stats.ExchangeKeys.Count {
			t.Errorf("told of %d exchanges, the figures are %d, %d with a time and %d with keys",
				f.exchanges, stats.Exchanges, stats.ExchangeTime.Count, stats.ExchangeKeys.Count)
		}
		if got := time.Duration(stats.ExchangeTime.Sum * float64(time.Second)); got-f.time > time.Microsecond || f.time-got > time.Microsecond {
			t.Errorf("told of %v of exchanges, the figure is %v", f.time, got)
		}
		if float64(f.keys) != stats.ExchangeKeys.Sum {
			t.Errorf("told of %d keys, the figure is %v", f.keys, stats.ExchangeKeys.Sum)
		}
		if !maps.Equal(f.lossesBy, stats.LossesBy) || f.locksLost != stats.LocksLost {
			t.Errorf("told of losses %v with %d locks, the figures are %v and %d", f.lossesBy, f.locksLost, stats.LossesBy, stats.LocksLost)
		}
		n := uint64(0)
		for _, losses := range f.lossesBy {
			n += losses
		}
		if n != stats.Losses {
			t.Errorf("told of %d losses, the figure is %d", n, stats.Losses)
		}
	})
}

// A lost connection counts once, under its cause, with its locks. Each of
// several Observers is told after the holders.
func TestLossesByCause(t *testing.T) {
	failing := func(err error) func(*Session, *fakeServer) {
		return func(s *Session, server *fakeServer) {
			server.session(0).hooks(nil, func() error { return err })
			beginTry(background, s, ID(3))
		}
	}
	tests := []struct {
		cause string
		lose  func(s *Session, server *fakeServer)
	}{
		{"connection", failing(errGone)},
		{"not_exclusive", failing(dialect.Refuse("another process answers"))},
		{"lock_missing", func(s *Session, server *fakeServer) {
			server.giveUp(ID(1))
			failing(&dialect.Failure{Kind: dialect.Statement, Reason: "cancelled"})(s, server)
		}},
		{"lease", func(s *Session, server *fakeServer) {
			server.session(0).hooks(nil, func() error { time.Sleep(2 * ticks); return errGone })
			beginTry(background, s, ID(3))
			time.Sleep(ticks)
			time.Sleep(ticks)
		}},
	}
	for _, tt := range tests {
		t.Run(tt.cause, func(t *testing.T) {
			var first, second figures
			var lock *Lock
			early := WithObserver(Observer{Lost: func(string, int) {
				if lock.Err() != ErrLost {
					t.Error("the Observer was told before the holder")
				}
			}})
			simulate(t, func(t *testing.T, s *Session, server *fakeServer) {
				lock = mustTry(t, s, ID(1))
				mustTry(t, s, ID(2))
				tt.lose(s, server)
				time.Sleep(ticks)
				got := s.Stats()
				want := map[string]uint64{"lease": 0, "connection": 0, "not_exclusive": 0, "lock_missing": 0}
				want[tt.cause] = 1
				if !maps.Equal(got.LossesBy, want) || got.Losses != 1 || got.LocksLost != 2 {
					t.Errorf("losses %v, %d in all, with %d locks; want one by %s with 2", got.LossesBy, got.Losses, got.LocksLost, tt.cause)
				}
				for _, f := range []*figures{&first, &second} {
					f.agree(t, got)
					if f.connected != 2 {
						t.Errorf("told of %d connections, want 2", f.connected)
					}
				}
			}, early, WithObserver(first.observer()), WithObserver(second.observer()))
		})
	}
}

// The lease that remains falls while the database is silent, also while the
// system is suspended. The connection with the least counts. While the database
// is away it is 0.
func TestLeaseRemaining(t *testing.T) {
	const validFor = 7990 * time.Millisecond
	var asleep atomic.Int64
	simulate(t, func(t *testing.T, s *Session, server *fakeServer) {
		remaining := func(want time.Duration) {
			t.Helper()
			if got := s.Stats().LeaseRemaining; got != want {
				t.Errorf("%v of the lease remain, want %v", got, want)
			}
		}
		mustTry(t, s, ID(1))
		remaining(validFor)
		hook, resume := hold(t)
		server.session(0).hooks(hook, nil)
		called := beginTry(background, s, ID(2))
		time.Sleep(3 * time.Second)
		remaining(validFor - 3*time.Second)
		asleep.Add(int64(time.Second))
		remaining(validFor - 4*time.Second)
		if got := s.Connections(); len(got) != 1 || got[0].LeaseRemaining != validFor-4*time.Second {
			t.Errorf("connections %+v", got)
		}
		server.mu.Lock()
		server.onOpen = func(int) error { return errGone }
		server.mu.Unlock()
		time.Sleep(10 * time.Second)
		remaining(0)
		if got := s.Connections(); len(got) != 0 {
			t.Errorf("connections %+v, while the database is away", got)
		}
		resume()
		<-called
	}, WithHeartbeat(2*time.Second), suspended(&asleep))
}

// The use of the lock table is as last measured. It is not known any more when
// the server stops to tell.
func TestTableFigures(t *testing.T) {
	withTable(t, 640, 1, func(t *testing.T, s *Session, table *fakeTable) {
		mustTry(t, s, ID(1))
		table.change(func() { table.others = 99 })
		time.Sleep(ticks)
		if got := s.Stats(); got.TableSize != 640 || got.TableUsed != 100 {
			t.Errorf("%d of %d places in use, want 100 of 640", got.TableUsed, got.TableSize)
		}
		table.change(func() {
			table.onLook = func() error { return &dialect.Failure{Kind: dialect.Statement, Reason: "no right"} }
		})
		time.Sleep(ticks)
		if got := s.Stats(); got.TableSize != 0 || got.TableUsed != 0 {
			t.Errorf("%d of %d places in use, want none to be known", got.TableUsed, got.TableSize)
		}
	})
}

// The map and the slices of Stats are the caller's own.
func TestStatsAreACopy(t *testing.T) {
	simulate(t, func(t *testing.T, s *Session, _ *fakeServer) {
		s.Stats().LossesBy["lease"] = 7
		s.Stats().ExchangeTime.Bounds[0] = 7
		if got := s.Stats(); got.LossesBy["lease"] != 0 || got.ExchangeTime.Bounds[0] == 7 {
			t.Errorf("%v, %v", got.LossesBy, got.ExchangeTime.Bounds)
		}
	})
}

// Each call counts once, by its result, whatever it took.
func TestCallsByResult(t *testing.T) {
	ended, cancel := context.WithCancel(background)
	cancel()
	soon := func(call func(context.Context) error) error {
		ctx, cancel := context.WithTimeout(background, time.Second)
		defer cancel()
		return call(ctx)
	}
	tests := []struct {
		name string
		call func(s *Session) error // ID(1) is held, the others are free
		want callTally
	}{
		{"a lock", func(s *Session) error { return second(s.TryLock(background, ID(2))) }, callTally{granted: 1}},
		{"a reader's", func(s *Session) error { return second(s.TryRLock(background, ID(2))) }, callTally{granted: 1}},
		{"one of several", func(s *Session) error { return second(s.TryAny(background, ID(1), ID(2), ID(3))) }, callTally{granted: 1}},
		{"a set", func(s *Session) error { return second(s.TryLockAll(background, ID(2), ID(3))) }, callTally{granted: 1}},
		{"a set of one", func(s *Session) error { return second(s.LockAll(background, ID(2))) }, callTally{granted: 1}},
		{"a set, after a wait", func(s *Session) error {
			time.AfterFunc(time.Second, func() { unlockOf(s, ID(1)) })
			return second(s.LockAll(background, ID(1), ID(2)))
		}, callTally{granted: 1}},
		{"busy", func(s *Session) error { return second(s.TryLock(background, ID(1))) }, callTally{denied: 1}},
		{"several busy", func(s *Session) error { return second(s.TryAny(background, ID(1), Pair(9, 9))) }, callTally{denied: 1}},
		{"a busy set", func(s *Session) error { return second(s.TryLockAll(background, ID(1), ID(2))) }, callTally{denied: 1}},
		{"its context ended before", func(s *Session) error { return second(s.TryLock(ended, ID(2))) }, callTally{canceled: 1}},
		{"the context of several ended before", func(s *Session) error { return second(s.LockAny(ended, ID(2), ID(3))) }, callTally{canceled: 1}},
		{"the context of a set ended before", func(s *Session) error { return second(s.LockAll(ended, ID(2), ID(3))) }, callTally{canceled: 1}},
		{"it waited in vain", func(s *Session) error {
			return soon(func(ctx context.Context) error { return second(s.Lock(ctx, ID(1))) })
		}, callTally{canceled: 1}},
		{"a set waited in vain", func(s *Session) error {
			return soon(func(ctx context.Context) error { return second(s.LockAll(ctx, ID(1), ID(2))) })
		}, callTally{canceled: 1}},
		{"it waited while the database was away", func(s *Session) error {
			session := s.slots[0].conn.session.(*fakeSession)
			session.hooks(func() error { time.Sleep(2 * time.Second); return nil }, nil)
			defer time.Sleep(ticks) // until the statement has its response
			defer session.hooks(nil, nil)
			return soon(func(ctx context.Context) error { return second(s.Lock(ctx, ID(2))) })
		}, callTally{failed: 1}},
		{"no keys", func(s *Session) error { return second(s.LockAll(background)) }, callTally{failed: 1}},
		{"any of no keys", func(s *Session) error { return second(s.TryAny(background)) }, callTally{failed: 1}},
		{"closed", func(s *Session) error {
			_ = s.Close()
			return second(s.TryLock(background, ID(2)))
		}, callTally{failed: 1}},
		{"no response", func(s *Session) error {
			s.slots[0].conn.session.(*fakeSession).hooks(func() error { time.Sleep(2 * time.Second); return nil }, nil)
			defer time.Sleep(ticks) // until the statement has its response
			return second(s.TryLock(background, ID(2)))
		}, callTally{failed: 1}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			simulate(t, func(t *testing.T, s *Session, server *fakeServer) {
				mustTry(t, s, ID(1))
				server.steal(Pair(9, 9))
				err := tt.call(s)
				if (err == nil) != (tt.want.granted == 1) {
					t.Errorf("the call: %v", err)
				}
				synctest.Wait()
				stats := s.Stats()
				got := callTally{stats.Granted - 1, stats.Denied, stats.Canceled, stats.Failed}
				if got != tt.want {
					t.Errorf("counted %+v, want %+v", got, tt.want)
				}
			})
		})
	}
}

// second returns the error of a call.
func second[T any](_ T, err error) error { return err }

// unlockOf releases key, which a caller holds.
func unlockOf(s *Session, key Key) {
	s.table.mu.Lock()
	lock := s.table.keys.of(key.id()).lock
	s.table.mu.Unlock()
	_ = lock.Unlock()
}

// A batch counts the keys that it requests and releases.
func TestExchangeKeys(t *testing.T) {
	var told figures
	simulate(t, func(t *testing.T, s *Session, server *fakeServer) {
		lock := mustTry(t, s, ID(1))                       // 1
		set, err := s.TryLockAll(background, ID(2), ID(3)) // 2
		if err != nil {
			t.Fatal(err)
		}
		one, err := s.TryAny(background, ID(4), ID(5), ID(6)) // 3
		if err != nil {
			t.Fatal(err)
		}
		mustUnlock(t, lock)                  // 1
		mustUnlock(t, one)                   // 1
		if err := set.Unlock(); err != nil { // 2
			t.Fatal(err)
		}
		synctest.Wait()
		stats := s.Stats()
		if stats.ExchangeKeys.Sum != 10 {
			t.Errorf("%v keys in %d exchanges, want 10", stats.ExchangeKeys.Sum, stats.Exchanges)
		}
		told.agree(t, stats)
		time.Sleep(time.Minute) // heartbeats
		idle := s.Stats()
		if idle.Exchanges == stats.Exchanges || idle.ExchangeKeys.Sum != 10 || idle.ExchangeKeys.Counts[0] == stats.ExchangeKeys.Counts[0] {
			t.Errorf("after an idle minute %d exchanges with %v keys, before %d with 10", idle.Exchanges, idle.ExchangeKeys.Sum, stats.Exchanges)
		}
		told.agree(t, idle)
	}, WithObserver(told.observer()))
}
