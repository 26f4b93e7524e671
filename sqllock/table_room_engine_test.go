package sqllock

import (
	"context"
	"database/sql"
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/latchkey-go/latchkey/internal/dialect"
)

// A fakeTable is a fake server with a lock table that other clients use as well.
type fakeTable struct {
	*fakeServer
	size, peers int

	tableMu sync.Mutex // protects what follows
	others  int        // places
	looks   int
	onLook  func() error // before a look is answered; may block
}

func (f *fakeTable) change(do func()) {
	f.tableMu.Lock()
	defer f.tableMu.Unlock()
	do()
}

// looked returns how often the engine has read the state of the table.
func (f *fakeTable) looked() (n int) {
	f.change(func() { n = f.looks })
	return n
}

func (f *fakeTable) Open(ctx context.Context, db *sql.DB, set dialect.Settings) (dialect.Session, error) {
	s, err := f.fakeServer.Open(ctx, db, set)
	if err != nil {
		return nil, err
	}
	return &surveyingSession{s.(*fakeSession), f}, nil
}

type surveyingSession struct {
	*fakeSession
	table *fakeTable
}

// LockTable implements dialect.Surveyor.
func (s *surveyingSession) LockTable() (dialect.LockTable, error) {
	t, own := s.table, s.server.held()
	var hook func() error
	t.change(func() { t.looks, hook = t.looks+1, t.onLook })
	if hook != nil {
		if err := hook(); err != nil {
			return dialect.LockTable{}, err
		}
	}
	t.tableMu.Lock()
	defer t.tableMu.Unlock()
	return dialect.LockTable{Size: t.size, Used: t.others + own, Sessions: t.peers}, nil
}

// withTable runs test in virtual time with a Session on a server with a lock table.
func withTable(t *testing.T, size, peers int, test func(t *testing.T, s *Session, table *fakeTable), opts ...Option) {
	t.Helper()
	table := &fakeTable{size: size, peers: peers}
	simulate(t, func(t *testing.T, s *Session, server *fakeServer) {
		synctest.Wait()
		test(t, s, table)
	}, append(opts, func(o *options) {
		table.fakeServer = o.dialect.(*fakeServer)
		o.dialect = table
	})...)
}

// Each Session of a fleet takes only a small part of the room before it reads the
// table again. So all of them together cannot fill it.
func TestShareOfTheLockTable(t *testing.T) {
	withTable(t, 10_000, 10, func(t *testing.T, s *Session, table *fakeTable) {
		before := table.looked()
		for n := range int64(75) { // a tenth of an eighth of 6,000
			mustTry(t, s, ID(n))
		}
		if n := table.looked() - before; n != 0 {
			t.Errorf("%d looks within the share", n)
		}
		table.change(func() { table.others = 5950 })
		if _, err := s.TryLock(t.Context(), ID(100)); !errors.Is(err, ErrCapacity) {
			t.Errorf("TryLock beyond the share, and others have come: %v, want ErrCapacity", err)
		}
	})
}

// If the statement that reads the table has no response, calls fail in time and
// the locks stay. If it fails, only WithMaxHeld limits the locks.
func TestLookFails(t *testing.T) {
	withTable(t, 1000, 1, func(t *testing.T, s *Session, table *fakeTable) {
		lock := mustTry(t, s, ID(0))
		hook, resume := hold(t)
		table.change(func() { table.onLook = hook })
		time.Sleep(s.options.heartbeat)
		asked := time.Now()
		if _, err := s.TryLock(t.Context(), ID(1)); !errors.Is(err, ErrUnavailable) {
			t.Errorf("TryLock behind a look that is stuck: %v", err)
		}
		if waited := time.Since(asked); waited > time.Second {
			t.Errorf("it failed after %v", waited)
		}
		resume()
		synctest.Wait()
		if err := lock.Err(); err != nil {
			t.Errorf("a lock from before: %v", err)
		}
		table.change(func() {
			table.onLook = func() error { return &dialect.Failure{Kind: dialect.Statement, Reason: "no such view"} }
		})
		time.Sleep(s.options.heartbeat)
		for n := range int64(700) {
			mustTry(t, s, ID(n+10))
		}
		if err := lock.Err(); err != nil {
			t.Errorf("a lock from before, after looks that failed: %v", err)
		}
	})
}

// A response ends a stall, even if it rejects the statement. From then on calls
// reach the server.
func TestRejectedLookEndsAStall(t *testing.T) {
	withTable(t, 1000, 1, func(t *testing.T, s *Session, table *fakeTable) {
		before := table.looked()
		hook, resume := hold(t)
		table.change(func() {
			table.onLook = func() error { _ = hook(); return &failedStatement }
		})
		var last <-chan called
		for n := int64(0); table.looked() == before; n++ { // up to the Session's share
			last = beginTry(background, s, ID(n))
		}
		wantErr(t, "TryLock behind a look that is stuck", <-last, ErrUnavailable)
		resume()
		synctest.Wait()
		mustTry(t, s, ID(-1))
	})
}

// A call that waits for room gets the key when there is room again. If its
// context ends before, its error matches ErrCapacity and that of the context.
func TestWaitForRoom(t *testing.T) {
	withTable(t, 1000, 1, func(t *testing.T, s *Session, table *fakeTable) {
		waits := map[string]func(ctx context.Context) error{
			"Lock":    func(ctx context.Context) error { _, err := s.Lock(ctx, ID(1)); return err },
			"RLock":   func(ctx context.Context) error { _, err := s.RLock(ctx, ID(2)); return err },
			"LockAny": func(ctx context.Context) error { _, err := s.LockAny(ctx, ID(3), ID(4)); return err },
			"LockAll": func(ctx context.Context) error { _, err := s.LockAll(ctx, ID(5), ID(6)); return err },
		}
		other := mustTry(t, s, ID(9))
		table.change(func() { table.others = 700 })
		time.Sleep(2 * s.options.heartbeat)
		for name, wait := range waits {
			if err := wait(timeoutIn(t, time.Minute)); !errors.Is(err, ErrCapacity) || !errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("%s without room: %v, want ErrCapacity and DeadlineExceeded", name, err)
			}
		}
		if _, err := s.Lock(timeoutIn(t, time.Minute), ID(9)); errors.Is(err, ErrCapacity) {
			t.Errorf("Lock of a key that this process holds: %v", err)
		}
		table.change(func() { table.others = 0 })
		for name, wait := range waits {
			if err := wait(timeoutIn(t, time.Minute)); err != nil {
				t.Errorf("%s, and there is room again: %v", name, err)
			}
		}
		for range 2 { // the second waits for a holder, not for room
			if _, err := s.Lock(timeoutIn(t, time.Minute), ID(1)); errors.Is(err, ErrCapacity) {
				t.Errorf("Lock of a key that had no room once: %v", err)
			}
		}
		mustUnlock(t, other)
	})
}

func timeoutIn(t *testing.T, d time.Duration) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), d)
	t.Cleanup(cancel)
	return ctx
}
