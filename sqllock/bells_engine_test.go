package sqllock

import (
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/latchkey-go/latchkey/internal/dialect/postgres"
)

// listenTo has a caller wait for each of n keys that another process holds, and
// returns once s hears the bells of all.
func listenTo(t *testing.T, s *Session, server *fakeServer, n int64) (calls []<-chan called) {
	t.Helper()
	for i := range n {
		server.steal(ID(i))
		calls = append(calls, begin(func() (*Lock, error) { return s.Lock(t.Context(), ID(i)) }))
	}
	time.Sleep(3 * time.Second) // several times bellAfterMax and pollHeard
	s.table.mu.Lock()
	defer s.table.mu.Unlock()
	b := s.bellsLocked()
	for number, one := range b.wanted {
		if !one.heard {
			t.Fatalf("bell %d is not heard", number)
		}
	}
	if len(b.wanted) != int(n) {
		t.Fatalf("%d bells, want %d", len(b.wanted), n)
	}
	return calls
}

// afterStatement returns when s has just been answered a statement for keys.
func afterStatement(s *fakeSession) {
	answered := make(chan struct{}, 1)
	s.hooks(nil, func() error {
		select {
		case answered <- struct{}{}:
		default:
		}
		return nil
	})
	<-answered
	s.hooks(nil, nil)
	synctest.Wait()
}

// A bell ends all pauses, also of keys that were denied a moment ago and that
// another statement would not take along yet.
func TestBellEndsPauses(t *testing.T) {
	simulate(t, func(t *testing.T, s *Session, server *fakeServer) {
		const keys = 60 // so many that a denial is recent for longer than ringMin
		calls := listenTo(t, s, server, keys)
		for i := range int64(10) {
			afterStatement(server.session(0))
			server.release(ID(i))
			time.Sleep(ringMin + time.Microsecond)
			if got := returned(t, "Lock", calls[i]); got.err != nil {
				t.Errorf("Lock: %v", got.err)
			}
		}
	}, withBells)
}

// A key whose bell is heard is polled half as often.
func TestHeardKeysPollSeldom(t *testing.T) {
	simulate(t, func(t *testing.T, s *Session, server *fakeServer) {
		listenTo(t, s, server, 1)
		before := len(server.session(0).sent())
		time.Sleep(10 * time.Second)
		n := len(server.session(0).sent()) - before
		if least, most := int(10*time.Second/pollHeard), int(10*time.Second/(pollHeard/2)); n < least || n > most {
			t.Errorf("%d statements in 10 s, want %d to %d", n, least, most)
		}
	}, withBells)
}

// Bells that bring no key have the socket watched less and less often.
func TestUselessBells(t *testing.T) {
	simulate(t, func(t *testing.T, s *Session, server *fakeServer) {
		calls := listenTo(t, s, server, 1)
		ring := func(during time.Duration) (sent int) {
			before := len(server.session(0).sent())
			for range during / (500 * time.Microsecond) {
				server.mu.Lock()
				server.ringLocked(ID(0).id(), nil)
				server.mu.Unlock()
				time.Sleep(500 * time.Microsecond)
			}
			return len(server.session(0).sent()) - before
		}
		ring(time.Second)
		const most = int(time.Second/ringMax + time.Second/(pollHeard/2) + 1)
		if n := ring(time.Second); n > most {
			t.Errorf("%d statements in a second of bells, want at most %d", n, most)
		}
		server.release(ID(0))
		time.Sleep(ringMax)
		if got := returned(t, "Lock", calls[0]); got.err != nil {
			t.Errorf("Lock: %v", got.err)
		}
	}, withBells)
}

// While a mark cannot be taken, the Session does not try for it with each
// statement. Once it can, the Session hears.
func TestMarkIsTakenElsewhere(t *testing.T) {
	simulate(t, func(t *testing.T, s *Session, server *fakeServer) {
		one := server.session(0)
		var taken atomic.Bool
		taken.Store(true)
		one.mu.Lock()
		one.onListen = func() (bool, error) { return !taken.Load(), nil }
		one.mu.Unlock()
		server.steal(ID(1))
		waiter := begin(func() (*Lock, error) { return s.Lock(t.Context(), ID(1)) })
		time.Sleep(time.Second)
		one.mu.Lock()
		before := one.listens
		one.mu.Unlock()
		for range 500 {
			mustUnlock(t, mustTry(t, s, ID(2)))
			time.Sleep(2 * time.Millisecond)
		}
		one.mu.Lock()
		listens := one.listens - before
		one.mu.Unlock()
		if most := int(time.Second/ringLinger) * 2; listens == 0 || listens > most {
			t.Errorf("%d attempts in a second, want 1 to %d", listens, most)
		}
		taken.Store(false)
		time.Sleep(2 * time.Second)
		server.release(ID(1))
		time.Sleep(ringMin + time.Microsecond)
		if got := returned(t, "Lock", waiter); got.err != nil {
			t.Errorf("Lock: %v", got.err)
		}
	}, withBells)
}

// Register implements postgres.Registrar.
func (s *fakeSession) Register(postgres.Registry, *postgres.Register) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.registers++
	return nil
}

// A bell is no heartbeat: it has nothing written to the registry.
func TestBellWritesNoRegistry(t *testing.T) {
	simulate(t, func(t *testing.T, s *Session, server *fakeServer) {
		listenTo(t, s, server, 1)
		registrar := new(registrar)
		registrar.tables.Store(new(postgres.Registry))
		s.table.mu.Lock()
		s.registrar = registrar
		s.table.mu.Unlock()
		const seconds = 20
		for range seconds * 10 {
			server.mu.Lock()
			server.ringLocked(ID(0).id(), nil)
			server.mu.Unlock()
			time.Sleep(100 * time.Millisecond)
		}
		one := server.session(0)
		one.mu.Lock()
		defer one.mu.Unlock()
		if most := int(seconds*time.Second/s.options.heartbeat) + 2; one.registers == 0 || one.registers > most {
			t.Errorf("%d records in %d s of bells, want 1 to %d", one.registers, seconds, most)
		}
		s.table.mu.Lock()
		s.registrar = nil // Close has nothing to write
		s.table.mu.Unlock()
	}, withBells)
}

// A Session that listens closes its connection once it is idle, and not while a
// caller waits. The marks end with it.
func TestIdleCloseWithBells(t *testing.T) {
	simulate(t, func(t *testing.T, s *Session, server *fakeServer) {
		calls := listenTo(t, s, server, 3)
		time.Sleep(time.Minute)
		if got := s.Stats(); got.IdleClosed || got.Waiting != 3 {
			t.Errorf("idle closed %t with %d waiters", got.IdleClosed, got.Waiting)
		}
		for i, c := range calls {
			server.release(ID(int64(i)))
			time.Sleep(ringMin + time.Microsecond)
			mustUnlock(t, returned(t, "Lock", c).lock)
		}
		time.Sleep(2*time.Second + time.Millisecond)
		server.mu.Lock()
		defer server.mu.Unlock()
		if s.table.busy != 0 || len(s.table.pausing) != 0 || len(server.marks) != 0 {
			t.Errorf("%d busy, %d pausing, %d sessions with marks", s.table.busy, len(s.table.pausing), len(server.marks))
		}
		if !s.Stats().IdleClosed {
			t.Error("the connection is open")
		}
	}, withBells, WithIdleClose(time.Second))
}
