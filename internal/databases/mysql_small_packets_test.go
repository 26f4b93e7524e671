package databases

import (
	"errors"
	"sync"
	"testing"

	"github.com/latchkey-go/latchkey/internal/lockertest"
	"github.com/latchkey-go/latchkey/internal/mariadbtest"
	"github.com/latchkey-go/latchkey/ratelimit"
	"github.com/latchkey-go/latchkey/sqllock"
)

// A server's max_allowed_packet may be so small that no statement carries all
// keys of a wide limit. A few statements look at them all, also while other
// callers have statements sent.
func TestMySQLSmallPackets(t *testing.T) {
	t.Parallel()
	const n = 900
	server := mariadbtest.New(t, "--max-allowed-packet=65536")
	o := lockertest.Orders{Driver: "mysql", DSN: server.Database(t)}
	full := ratelimit.AtMost(n, process(t, o), "exports")
	one := admitted(t, full, "ada")
	for range n - 1 {
		admitted(t, full, "ada")
	}
	s := process(t, o)
	l, other := ratelimit.AtMost(n, s, "exports"), ratelimit.OneAtATime(s, "others")

	done := make(chan struct{})
	var traffic sync.WaitGroup
	for i := range 4 {
		id := string(rune('a' + i))
		traffic.Go(func() {
			for {
				select {
				case <-done:
					return
				default:
					_ = admitted(t, other, id).Unlock()
				}
			}
		})
	}
	before := s.Stats().Exchanges
	var callers sync.WaitGroup
	for range 20 {
		callers.Go(func() {
			if _, err := l.Acquire(t.Context(), "ada"); !errors.Is(err, ratelimit.ErrBusy) {
				t.Errorf("a full limit: %v, want ErrBusy", err)
			}
		})
	}
	callers.Wait()
	close(done)
	traffic.Wait()
	quiet := s.Stats().Exchanges
	if _, err := l.Acquire(t.Context(), "ada"); !errors.Is(err, ratelimit.ErrBusy) {
		t.Errorf("a full limit: %v, want ErrBusy", err)
	}
	if n := s.Stats().Exchanges - quiet; n > 8 {
		t.Errorf("one rejection took %d statements", n)
	}
	t.Logf("%d statements under traffic", quiet-before)
	must(t, one.Unlock())
	must(t, admitted(t, l, "ada").Unlock())
}

// admitted returns the lock of a request that l must admit.
func admitted(t *testing.T, l *ratelimit.Limiter, id string) *sqllock.Lock {
	t.Helper()
	lock, err := l.Acquire(t.Context(), id)
	if err != nil {
		t.Error(err)
	}
	return lock
}
