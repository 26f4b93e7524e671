package databases

import (
	"context"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/latchkey-go/latchkey/internal/lockertest"
	"github.com/latchkey-go/latchkey/sqllock"
)

// A traffic is callers of several Sessions that contend for a few keys, while a
// test disturbs what is between them and the database.
type traffic struct {
	t        *testing.T
	sessions []*sqllock.Session
	news     bool // the server may end a session before its holders are told
	stop     chan struct{}
	callers  sync.WaitGroup
	grants   atomic.Int64
	failures atomic.Int64

	mu      sync.Mutex // protects holders
	holders map[sqllock.Key]*sqllock.Lock
}

// startTraffic starts callers. If news is true, two holders of one key count as
// an error only if neither is told (docs/decisions/0007).
func startTraffic(t *testing.T, news bool, sessions ...*sqllock.Session) *traffic {
	tr := &traffic{t: t, sessions: sessions, news: news, stop: make(chan struct{}), holders: make(map[sqllock.Key]*sqllock.Lock)}
	for _, s := range sessions {
		for i := range 6 {
			tr.callers.Go(func() { tr.call(s, sqllock.ID(int64(100+i%3))) })
		}
	}
	t.Cleanup(tr.end)
	tr.flows("before the disturbance")
	return tr
}

// call takes key again and again. A call that fails is made again.
func (tr *traffic) call(s *sqllock.Session, key sqllock.Key) {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	go func() {
		select {
		case <-tr.stop:
			cancel()
		case <-ctx.Done():
		}
	}()
	for ctx.Err() == nil {
		lock, err := s.Lock(ctx, key)
		if err != nil {
			tr.failures.Add(1)
			pause(ctx, 20*time.Millisecond)
			continue
		}
		tr.enter(key, lock)
		pause(ctx, time.Duration(rand.IntN(10))*time.Millisecond) // the caller's work
		tr.leave(key, lock)
		_ = lock.Unlock()
	}
}

func pause(ctx context.Context, d time.Duration) {
	select {
	case <-time.After(d):
	case <-ctx.Done():
	}
}

// enter notes a grant, and checks that no other lock of the key is held.
func (tr *traffic) enter(key sqllock.Key, lock *sqllock.Lock) {
	tr.grants.Add(1)
	tr.mu.Lock()
	other := tr.holders[key]
	tr.holders[key] = lock
	tr.mu.Unlock()
	overlaps := func() bool { return other.Err() == nil && lock.Err() == nil }
	if other == nil || !overlaps() {
		return
	}
	if !tr.news {
		tr.t.Error("a key is held twice")
		return
	}
	for deadline := time.Now().Add(soon); overlaps(); time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			tr.t.Error("a key is held twice, and neither holder is told")
			return
		}
	}
}

func (tr *traffic) leave(key sqllock.Key, lock *sqllock.Lock) {
	tr.mu.Lock()
	defer tr.mu.Unlock()
	if tr.holders[key] == lock {
		delete(tr.holders, key)
	}
}

// flows waits until each Session is granted locks again.
func (tr *traffic) flows(when string) {
	tr.t.Helper()
	for _, s := range tr.sessions {
		granted := s.Stats().Granted
		lockertest.Eventually(tr.t, "callers are served "+when, func() bool { return s.Stats().Granted >= granted+2 })
	}
}

// end stops the callers.
func (tr *traffic) end() {
	select {
	case <-tr.stop:
	default:
		close(tr.stop)
	}
	tr.callers.Wait()
}

// losses returns the losses of all Sessions.
func (tr *traffic) losses() (n uint64) {
	for _, s := range tr.sessions {
		n += s.Stats().Losses
	}
	return n
}
