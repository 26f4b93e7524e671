package sqllock

import (
	"context"
	"net"
	"testing"
	"testing/synctest"
	"time"
)

// A fakeProber is a fake server that responds to every probe.
type fakeProber struct{ *fakeServer }

func (fakeProber) Responds(context.Context, net.Addr) bool { return true }

// A server may respond to probes and be slow to connect. The first attempt goes
// on beside the few that start later. The connections that come too late are
// destroyed.
func TestSlowAttemptWins(t *testing.T) {
	simulate(t, func(t *testing.T, s *Session, server *fakeServer) {
		const slow = 3 * time.Second
		stuck, resume := hold(t)
		server.mu.Lock()
		server.onOpen = func(n int) error {
			if n == 2 { // the first after the loss
				time.Sleep(slow)
				return nil
			}
			return stuck()
		}
		server.mu.Unlock()
		lock := mustTry(t, s, ID(1))
		s.table.mu.Lock()
		s.address = new(net.TCPAddr)
		s.table.mu.Unlock()
		server.session(0).hooks(func() error { return errGone }, nil)
		lost := time.Now()
		beginTry(background, s, ID(2))
		<-lock.Context().Done()
		time.Sleep(time.Until(lost.Add(slow + time.Millisecond)))
		mustTry(t, s, ID(3))
		server.mu.Lock()
		opens := server.opens
		server.mu.Unlock()
		if want := 2 + maxBeside; opens != want {
			t.Errorf("%d connections were begun, want %d", opens, want)
		}
		resume()
		synctest.Wait()
		for n := 2; n < opens; n++ {
			select {
			case <-server.session(n).closed:
			default:
				t.Errorf("connection %d, which came too late, is not destroyed", n)
			}
		}
	}, func(o *options) { o.dialect = fakeProber{o.dialect.(*fakeServer)} })
}

// An attempt that succeeds after another one has won undoes what it has brought.
func TestSecondSuccessIsUndone(t *testing.T) {
	simulate(t, func(t *testing.T, s *Session, _ *fakeServer) {
		ctx, won := context.WithCancel(background)
		undone := 0
		second := &race[int]{
			ctx: ctx, slot: s.slots[0], outcomes: make(chan outcome[int]),
			do:   func(context.Context) (int, error) { return 1, nil },
			undo: func(int) { undone++ },
		}
		second.start()
		synctest.Wait() // it has succeeded, and first no longer receives
		won()
		synctest.Wait()
		if undone != 1 {
			t.Errorf("undone %d times, want once", undone)
		}
	})
}

// A stuck driver costs a limited number of goroutines, however often the Session
// needs another connection.
func TestStuckGrowth(t *testing.T) {
	simulate(t, func(t *testing.T, s *Session, server *fakeServer) {
		stuck, resume := hold(t)
		defer resume()
		server.mu.Lock()
		server.onOpen = func(int) error { return stuck() }
		server.mu.Unlock()
		for i := range int64(300) {
			mustTry(t, s, ID(i))
			time.Sleep(time.Second)
		}
		server.mu.Lock()
		defer server.mu.Unlock()
		if n := server.opens - 1; n == 0 || n > maxInDriver {
			t.Errorf("%d attempts are stuck, want 1 to %d", n, maxInDriver)
		}
	}, withPerConn(2), WithMaxConns(2))
}
