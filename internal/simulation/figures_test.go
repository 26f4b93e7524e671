package simulation

import (
	"context"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/latchkey-go/latchkey/internal/dialect"
	"github.com/latchkey-go/latchkey/internal/lockertest"
	"github.com/latchkey-go/latchkey/sqllock"
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

func (f *figures) observer() sqllock.Observer {
	return sqllock.Observer{
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

// noLosses has each cause of a loss.
func noLosses() map[string]uint64 {
	return map[string]uint64{"lease": 0, "connection": 0, "not_exclusive": 0, "lock_missing": 0}
}

func (f *figures) add(do func()) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.lossesBy == nil {
		f.lossesBy = noLosses()
	}
	do()
}

// agree returns the Stats of s, once no statement of this moment is under way. It
// reports where they are not the sums of what the Observer was told.
func (f *figures) agree(t *testing.T, s *sqllock.Session) sqllock.Stats {
	t.Helper()
	synctest.Wait()
	stats := s.Stats()
	f.add(func() {
		losses := uint64(0)
		for _, n := range f.lossesBy {
			losses += n
		}
		n := float64(f.exchanges)
		told := []float64{n, n, n, float64(f.keys), float64(losses), float64(f.locksLost)}
		got := []float64{
			float64(stats.Exchanges), float64(stats.ExchangeTime.Count), float64(stats.ExchangeKeys.Count),
			stats.ExchangeKeys.Sum, float64(stats.Losses), float64(stats.LocksLost),
		}
		if !slices.Equal(told, got) || !maps.Equal(f.lossesBy, stats.LossesBy) {
			t.Errorf("told of %v and of losses %v, the figures are %v and %v", told, f.lossesBy, got, stats.LossesBy)
		}
		if got := time.Duration(stats.ExchangeTime.Sum * float64(time.Second)); (got - f.time).Abs() > time.Microsecond {
			t.Errorf("told of %v of exchanges, the figure is %v", f.time, got)
		}
	})
	return stats
}

// A lost connection counts once, under its cause, with its locks. Each of
// several Observers is told after the holders. A process that stood still for the
// lease learns of it by an error: the server has ended its silent session.
func TestLossesByCause(t *testing.T) {
	failing := func(err error) func(*sqllock.Session, *stage) {
		return func(s *sqllock.Session, st *stage) {
			st.conn(0).hooks(nil, fail(err))
			beginTry(background, s, sqllock.ID(3))
		}
	}
	for name, lose := range map[string]func(s *sqllock.Session, st *stage){
		"connection":    failing(errGone),
		"not_exclusive": failing(dialect.Refuse("another process answers")),
		"lock_missing": func(s *sqllock.Session, st *stage) {
			st.giveUp(sqllock.ID(1))
			failing(failedStatement)(s, st)
		},
		"lease, seen after a freeze": func(s *sqllock.Session, st *stage) {
			st.conn(0).hooks(nil, func() error { st.link.asleep.Add(int64(trust)); return errGone })
			beginTry(background, s, sqllock.ID(3))
		},
		"lease": func(s *sqllock.Session, st *stage) {
			st.conn(0).hooks(nil, func() error { time.Sleep(2 * ticks); return errGone })
			beginTry(background, s, sqllock.ID(3))
			time.Sleep(2 * ticks)
		},
	} {
		t.Run(name, func(t *testing.T) {
			cause, _, _ := strings.Cut(name, ",")
			var first, second figures
			var lock *sqllock.Lock
			early := sqllock.WithObserver(sqllock.Observer{Lost: func(string, int) {
				if lock.Err() != sqllock.ErrLost {
					t.Error("the Observer was told before the holder")
				}
			}})
			scripted(t, func(t *testing.T, s *sqllock.Session, st *stage) {
				lock = mustTry(t, s, sqllock.ID(1))
				mustTry(t, s, sqllock.ID(2))
				lose(s, st)
				time.Sleep(ticks)
				want := noLosses()
				want[cause] = 1
				first.agree(t, s)
				got := second.agree(t, s)
				if !maps.Equal(got.LossesBy, want) || got.Losses != 1 || got.LocksLost != 2 {
					t.Errorf("losses %v, %d in all, with %d locks; want one by %s with 2", got.LossesBy, got.Losses, got.LocksLost, cause)
				}
				for _, f := range []*figures{&first, &second} {
					if f.connected != 2 {
						t.Errorf("told of %d connections, want 2", f.connected)
					}
				}
			}, early, sqllock.WithObserver(first.observer()), sqllock.WithObserver(second.observer()))
		})
	}
}

// The lease that remains falls while the database is silent, also while the
// system is suspended. The connection with the least counts. While the database
// is away it is 0.
func TestLeaseRemaining(t *testing.T) {
	script{perConn: 2, opts: []sqllock.Option{sqllock.WithMaxConns(2), sqllock.WithHeartbeat(2 * time.Second)}}.run(t, func(t *testing.T, s *sqllock.Session, st *stage) {
		remaining := func(want time.Duration) {
			t.Helper()
			if got := s.Stats().LeaseRemaining; got != want {
				t.Errorf("%v of the lease remain, want %v", got, want)
			}
		}
		remaining(trust)
		twoConnections(t, s)
		remaining(trust)
		hook, resume := hold(t)
		st.conn(1).hooks(hook, nil)
		called := beginTry(background, s, sqllock.ID(4))
		time.Sleep(3 * time.Second)
		remaining(trust - 3*time.Second)
		st.link.asleep.Add(int64(time.Second))
		remaining(trust - 4*time.Second)
		if got := s.Connections(); len(got) != 2 || got[1].LeaseRemaining != trust-4*time.Second || got[0].LeaseRemaining <= trust-4*time.Second {
			t.Errorf("connections %+v", got)
		}
		st.onOpen(func(int) error { return errGone })
		st.conn(0).hooks(fail(errGone), nil)
		time.Sleep(10 * time.Second)
		remaining(0)
		if got := s.Connections(); len(got) != 0 {
			t.Errorf("connections %+v, while the database is away", got)
		}
		resume()
		<-called
	})
}

// The map and the slices of Stats are the caller's own.
func TestStatsAreACopy(t *testing.T) {
	scripted(t, func(t *testing.T, s *sqllock.Session, _ *stage) {
		s.Stats().LossesBy["lease"] = 7
		s.Stats().ExchangeTime.Bounds[0] = 7
		if got := s.Stats(); got.LossesBy["lease"] != 0 || got.ExchangeTime.Bounds[0] == 7 {
			t.Errorf("%v, %v", got.LossesBy, got.ExchangeTime.Bounds)
		}
	})
}

// Each call counts once, by its result, whatever it took.
func TestCallsByResult(t *testing.T) {
	type results struct{ granted, denied, canceled, failed uint64 }
	ended, cancel := context.WithCancel(background)
	cancel()
	soon := func(call func(context.Context) error) error {
		ctx, cancel := context.WithTimeout(background, time.Second)
		defer cancel()
		return call(ctx)
	}
	slow := func(st *stage) (end func()) {
		st.conn(0).hooks(func() error { time.Sleep(2 * time.Second); return nil }, nil)
		return func() {
			st.conn(0).hooks(nil, nil)
			time.Sleep(ticks) // until the statement has its response
		}
	}
	tests := []struct {
		name string
		call func(s *sqllock.Session, st *stage, one *sqllock.Lock) error // one holds ID(1), and another process Pair(9, 9)
		want results
	}{
		{"a lock", func(s *sqllock.Session, _ *stage, _ *sqllock.Lock) error {
			return second(s.TryLock(background, sqllock.ID(2)))
		}, results{granted: 1}},
		{"a set, after a wait", func(s *sqllock.Session, _ *stage, one *sqllock.Lock) error {
			time.AfterFunc(time.Second, func() { _ = one.Unlock() })
			return second(s.LockAll(background, ids(1, 2)...))
		}, results{granted: 1}},
		{"busy", func(s *sqllock.Session, _ *stage, _ *sqllock.Lock) error {
			return second(s.TryLock(background, sqllock.ID(1)))
		}, results{denied: 1}},
		{"a full group", func(s *sqllock.Session, _ *stage, _ *sqllock.Lock) error {
			return second(lockertest.TryEach(background, s, [][]sqllock.Key{ids(2), ids(1)}))
		}, results{denied: 1}},
		{"its context ended before", func(s *sqllock.Session, _ *stage, _ *sqllock.Lock) error {
			return second(s.TryLock(ended, sqllock.ID(2)))
		}, results{canceled: 1}},
		{"it waited without success", func(s *sqllock.Session, _ *stage, _ *sqllock.Lock) error {
			return soon(func(ctx context.Context) error { return second(s.Lock(ctx, sqllock.ID(1))) })
		}, results{canceled: 1}},
		{"it waited while the database was away", func(s *sqllock.Session, st *stage, _ *sqllock.Lock) error {
			defer slow(st)()
			return soon(func(ctx context.Context) error { return second(s.Lock(ctx, sqllock.ID(2))) })
		}, results{failed: 1}},
		{"no response", func(s *sqllock.Session, st *stage, _ *sqllock.Lock) error {
			defer slow(st)()
			return second(s.TryLock(background, sqllock.ID(2)))
		}, results{failed: 1}},
		{"no keys", func(s *sqllock.Session, _ *stage, _ *sqllock.Lock) error { return second(s.LockAll(background)) }, results{failed: 1}},
		{"closed", func(s *sqllock.Session, _ *stage, _ *sqllock.Lock) error {
			_ = s.Close()
			return second(s.TryLock(background, sqllock.ID(2)))
		}, results{failed: 1}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			scripted(t, func(t *testing.T, s *sqllock.Session, st *stage) {
				st.steal(sqllock.Pair(9, 9))
				err := tt.call(s, st, mustTry(t, s, sqllock.ID(1)))
				if (err == nil) != (tt.want.granted == 1) {
					t.Errorf("the call: %v", err)
				}
				synctest.Wait()
				stats := s.Stats()
				if got := (results{stats.Granted - 1, stats.Denied, stats.Canceled, stats.Failed}); got != tt.want {
					t.Errorf("counted %+v, want %+v", got, tt.want)
				}
			})
		})
	}
}

// A batch counts the keys that it requests and releases, also if the server
// rejects it.
func TestExchangeKeys(t *testing.T) {
	var told figures
	scripted(t, func(t *testing.T, s *sqllock.Session, st *stage) {
		lock := mustTry(t, s, sqllock.ID(1))                  // 1
		set, err := s.TryLockAll(background, ids(2, 3)...)    // 2
		wantErr(t, "TryLockAll", err, nil)                    //
		several, err := s.TryAny(background, ids(4, 5, 6)...) // 3
		wantErr(t, "TryAny", err, nil)                        //
		mustUnlock(t, lock)                                   // 1
		mustUnlock(t, several)                                // 1
		wantErr(t, "Unlock of the set", set.Unlock(), nil)    // 2
		st.conn(0).hooks(fail(failedStatement), nil)
		wantErr(t, "TryLock", second(s.TryLock(background, sqllock.ID(7))), sqllock.ErrUnavailable) // 1
		st.conn(0).hooks(nil, nil)
		stats := told.agree(t, s)
		if stats.ExchangeKeys.Sum != 11 {
			t.Errorf("%v keys in %d exchanges, want 11", stats.ExchangeKeys.Sum, stats.Exchanges)
		}
		time.Sleep(time.Minute) // heartbeats
		idle := told.agree(t, s)
		if idle.Exchanges == stats.Exchanges || idle.ExchangeKeys.Sum != 11 || idle.ExchangeKeys.Counts[0] == stats.ExchangeKeys.Counts[0] {
			t.Errorf("after an idle minute %d exchanges with %v keys, before %d with 11", idle.Exchanges, idle.ExchangeKeys.Sum, stats.Exchanges)
		}
	}, sqllock.WithObserver(told.observer()))
}

// A logger and an Observer may call methods of the Session. An Observer may lack
// any func.
func TestCalledBackMayCallTheSession(t *testing.T) {
	var session atomic.Pointer[sqllock.Session]
	calls := func() {
		if s := session.Load(); s != nil {
			_ = s.Stats()
			_ = s.Connections()
		}
	}
	scripted(t, func(t *testing.T, s *sqllock.Session, st *stage) {
		session.Store(s)
		st.onOpen(func(n int) error {
			if n < 4 {
				return errGone
			}
			return nil
		})
		st.conn(0).hooks(nil, fail(errGone))
		_, _ = s.TryLock(background, sqllock.ID(1))
		time.Sleep(ticks)
		mustUnlock(t, mustTry(t, s, sqllock.ID(1)))
	}, sqllock.WithLogger(slog.New(slog.NewTextHandler(writerFunc(calls), nil))), sqllock.WithObserver(sqllock.Observer{}), sqllock.WithObserver(sqllock.Observer{
		Exchanged: func(time.Duration, int) { calls() },
		Connected: calls,
		Lost:      func(string, int) { calls() },
	}))
}

// A writerFunc is called for each record of a log.
type writerFunc func()

func (w writerFunc) Write(p []byte) (int, error) {
	w()
	return len(p), nil
}
