package simulation

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/latchkey-go/latchkey/internal/dialect"
	"github.com/latchkey-go/latchkey/sqllock"
)

// A lockTable is a server's lock table, which other clients use as well.
type lockTable struct {
	size, peers int

	mu     sync.Mutex // protects what follows
	others int        // places
	looks  int
	onLook func() error // before a look is answered; may block
}

// A surveying is a session that shows the lock table.
type surveying struct {
	*conn
	table *lockTable
}

// LockTable implements dialect.Surveyor.
func (s surveying) LockTable() (dialect.LockTable, error) {
	if err := s.say(); err != nil {
		return dialect.LockTable{}, err
	}
	t, own := s.table, s.stage.held()
	var hook func() error
	t.change(func() { t.looks, hook = t.looks+1, t.onLook })
	if hook != nil {
		if err := hook(); err != nil {
			return dialect.LockTable{}, err
		}
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	return dialect.LockTable{Size: t.size, Used: t.others + own, Sessions: t.peers}, nil
}

func (l *lockTable) change(do func()) {
	l.mu.Lock()
	defer l.mu.Unlock()
	do()
}

// looked returns how often the engine has read the state of the table.
func (l *lockTable) looked() (n int) {
	l.change(func() { n = l.looks })
	return n
}

// withTable runs test on a server with a lock table.
func withTable(t *testing.T, table *lockTable, test func(t *testing.T, s *sqllock.Session, st *stage), opts ...sqllock.Option) {
	t.Helper()
	script{opts: opts, session: func(_ *stage, c *conn) dialect.Session { return surveying{c, table} }}.run(t, func(t *testing.T, s *sqllock.Session, st *stage) {
		synctest.Wait()
		test(t, s, st)
	})
}

// Each Session of a fleet takes only a small part of the room before it reads the
// table again. So all of them together cannot fill it.
func TestShareOfTheLockTable(t *testing.T) {
	table := &lockTable{size: 10_000, peers: 10}
	withTable(t, table, func(t *testing.T, s *sqllock.Session, _ *stage) {
		mustTry(t, s, sqllock.ID(0))
		before := table.looked()
		for n := range int64(74) { // a tenth of an eighth of 6,000, less one
			mustTry(t, s, sqllock.ID(1+n))
		}
		if n := table.looked() - before; n != 0 {
			t.Errorf("%d looks within the share", n)
		}
		table.change(func() { table.others = 5950 })
		wantErr(t, "TryLock beyond the share, and others have come", second(s.TryLock(t.Context(), sqllock.ID(100))), sqllock.ErrCapacity)
	})
}

// A connection that is never silent reads the table once a heartbeat, too.
func TestLooksUnderTraffic(t *testing.T) {
	table := &lockTable{size: 1000, peers: 1}
	withTable(t, table, func(t *testing.T, s *sqllock.Session, _ *stage) {
		const beats = 10
		before, end := table.looked(), time.Now().Add(beats*s.Stats().Heartbeat)
		for ; !time.Now().After(end); time.Sleep(5 * time.Millisecond) {
			mustUnlock(t, mustTry(t, s, sqllock.ID(1)))
		}
		if n := table.looked() - before; n != beats {
			t.Errorf("%d looks in %d heartbeats of traffic", n, beats)
		}
	})
}

// If the statement that reads the table has no response, calls fail in time and
// the locks stay. A response ends the stall, even if it rejects the statement. If
// the statement fails, only WithMaxHeld limits the locks.
func TestLookFails(t *testing.T) {
	table := &lockTable{size: 1000, peers: 1}
	withTable(t, table, func(t *testing.T, s *sqllock.Session, _ *stage) {
		lock := mustTry(t, s, sqllock.ID(0))
		hook, resume := hold(t)
		table.change(func() {
			table.onLook = func() error { _ = hook(); return failedStatement }
		})
		time.Sleep(s.Stats().Heartbeat)
		asked := time.Now()
		wantErr(t, "TryLock behind a look that is stuck", second(s.TryLock(t.Context(), sqllock.ID(1))), sqllock.ErrUnavailable)
		if waited := time.Since(asked); waited > responseBound {
			t.Errorf("it failed after %v", waited)
		}
		resume()
		synctest.Wait()
		wantErr(t, "Err of a lock from before", lock.Err(), nil)
		mustTry(t, s, sqllock.ID(1))
		time.Sleep(s.Stats().Heartbeat)
		for n := range int64(700) {
			mustTry(t, s, sqllock.ID(n+10))
		}
		wantErr(t, "Err after looks that failed", lock.Err(), nil)
		if got := s.Stats(); got.TableSize != 0 || got.TableUsed != 0 {
			t.Errorf("%d of %d places after a look that failed, want none to be known", got.TableUsed, got.TableSize)
		}
	})
}

// A call that waits for room gets the key when there is room again. If its
// context ends before, its error matches ErrCapacity and that of the context. The
// log says when the table is full, and when it has room again.
func TestWaitForRoom(t *testing.T) {
	var log bytes.Buffer
	table := &lockTable{size: 1000, peers: 1}
	withTable(t, table, func(t *testing.T, s *sqllock.Session, _ *stage) {
		waits := map[string]func(ctx context.Context) error{
			"Lock":    func(ctx context.Context) error { return second(s.Lock(ctx, sqllock.ID(1))) },
			"LockAll": func(ctx context.Context) error { return second(s.LockAll(ctx, ids(5, 6)...)) },
		}
		within := func(wait func(context.Context) error) error {
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			return wait(ctx)
		}
		nine := func(ctx context.Context) error { return second(s.Lock(ctx, sqllock.ID(9))) }
		other := mustTry(t, s, sqllock.ID(9))
		table.change(func() { table.others = 700 })
		time.Sleep(2 * s.Stats().Heartbeat)
		for name, wait := range waits {
			if err := within(wait); !errors.Is(err, sqllock.ErrCapacity) || !errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("%s without room: %v, want ErrCapacity and DeadlineExceeded", name, err)
			}
		}
		if err := within(nine); errors.Is(err, sqllock.ErrCapacity) {
			t.Errorf("Lock of a key that this process holds: %v", err)
		}
		table.change(func() { table.others = 0 })
		time.Sleep(2 * s.Stats().Heartbeat)
		for name, wait := range waits { // no other call brings a statement
			table.change(func() { table.others = 700 })
			time.Sleep(2 * s.Stats().Heartbeat)
			call := begin(func() (sqllock.Locks, error) { return nil, wait(background) })
			time.Sleep(time.Minute)
			pending(t, name, call)
			table.change(func() { table.others = 0 })
			time.Sleep(s.Stats().Heartbeat + time.Second)
			wantReturned(t, name+", and there is room again", call, nil)
		}
		for range 2 { // the second waits for a holder, not for room
			if err := within(waits["Lock"]); errors.Is(err, sqllock.ErrCapacity) {
				t.Errorf("Lock of a key that had no room once: %v", err)
			}
		}
		mustUnlock(t, other)
		time.Sleep(2 * s.Stats().Heartbeat)
		if text := log.String(); strings.Count(text, "new keys are denied") != 3 || strings.Count(text, "has room again") != 3 {
			t.Errorf("the log: %s", text)
		}
	}, sqllock.WithLogger(slog.New(slog.NewTextHandler(&log, nil))))
}

// A set may take more than the share of its Session right after a look, up to a
// quarter of the room. A larger one is denied. A server that says that it is full
// denies new keys.
func TestSetsAndTheRoom(t *testing.T) {
	table := &lockTable{size: 1000, peers: 10}
	withTable(t, table, func(t *testing.T, s *sqllock.Session, st *stage) {
		all := func(from, n int64) error {
			var keys []sqllock.Key
			for i := range n {
				keys = append(keys, sqllock.ID(from+i))
			}
			locks, err := s.TryLockAll(background, keys...)
			if err == nil {
				err = locks.Unlock()
			}
			return err
		}
		wantErr(t, "a set of a quarter of the room", all(0, 150), nil)
		wantErr(t, "a larger set", all(1000, 200), sqllock.ErrCapacity)
		table.change(func() { table.others = 550 }) // of another Session, which has looked after this one
		wantErr(t, "a set of a quarter of the room that there was", all(0, 150), sqllock.ErrCapacity)
		table.change(func() { table.others = 0 })
		table.change(func() { table.onLook = fail(&dialect.Failure{Kind: dialect.Full, Reason: "full"}) })
		time.Sleep(s.Stats().Heartbeat)
		wantErr(t, "TryLock at a full server", second(s.TryLock(background, sqllock.ID(1))), sqllock.ErrCapacity)
		wantErr(t, "a set at a full server", all(0, 2), sqllock.ErrCapacity)
	})
}

// The room in the server's lock table is not known while a Session sleeps.
func TestIdleCloseForgetsTheRoom(t *testing.T) {
	table := &lockTable{size: 100, peers: 1}
	withTable(t, table, func(t *testing.T, s *sqllock.Session, st *stage) {
		table.change(func() { table.others = 70 })
		time.Sleep(s.Stats().Heartbeat)
		wantErr(t, "TryLock", second(s.TryLock(background, sqllock.ID(1))), sqllock.ErrCapacity)
		if got := s.Stats(); got.TableSize != 100 || got.TableUsed != 70 {
			t.Errorf("%d of %d places in use, want 70 of 100", got.TableUsed, got.TableSize)
		}
		time.Sleep(2 * idleTime)
		asleep(t, s, st)
		if got := s.Stats(); got.TableSize != 0 || got.TableUsed != 0 {
			t.Errorf("%d of %d places while it sleeps", got.TableUsed, got.TableSize)
		}
		table.change(func() { table.others = 0 })
		mustUnlock(t, mustTry(t, s, sqllock.ID(1))) // what was known before denies nothing
	}, sqllock.WithIdleClose(idleTime))
}
