package sqllock

import (
	"log/slog"
	"math/rand/v2"
	"sync"
	"testing"
	"time"
)

// random is a source of chance for many goroutines.
type random struct {
	mu  sync.Mutex
	rng *rand.Rand
}

func newRandom(seed uint64) *random { return &random{rng: rand.New(rand.NewPCG(seed, 1))} }

func (r *random) intn(n int) int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.rng.IntN(n)
}

func (r *random) oneIn(n int) bool { return r.intn(n) == 0 }

func (r *random) duration(limit time.Duration) time.Duration {
	return time.Duration(r.intn(int(limit)))
}

func withoutLog() Option { return WithLogger(slog.New(slog.DiscardHandler)) }

// hurt changes what happens to a random session from now on.
func (f *fakeServer) hurt(rng *random) {
	f.mu.Lock()
	s := f.sessions[rng.intn(len(f.sessions))]
	f.mu.Unlock()
	lose := func() error {
		time.Sleep(rng.duration(5 * time.Millisecond))
		if rng.oneIn(20) {
			return errGone
		}
		return nil
	}
	stall := func() error {
		if rng.oneIn(10) {
			time.Sleep(rng.duration(12 * time.Second))
		}
		return nil
	}
	switch rng.intn(4) {
	case 0:
		s.hooks(lose, nil)
	case 1:
		s.hooks(nil, lose)
	case 2:
		s.hooks(nil, stall)
	case 3:
		s.hooks(nil, nil)
	}
}

// heal ends all faults.
func (f *fakeServer) heal() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.onOpen = nil
	for _, s := range f.sessions {
		s.hooks(nil, nil)
	}
}

// holders checks that no two valid locks are on one key.
type holders struct {
	t    *testing.T
	seed uint64
	mu   sync.Mutex
	m    map[Key]map[*Lock]bool
}

func newHolders(t *testing.T, seed uint64) *holders {
	return &holders{t: t, seed: seed, m: make(map[Key]map[*Lock]bool)}
}

func (h *holders) enter(l *Lock) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.m[l.Key()] == nil {
		h.m[l.Key()] = make(map[*Lock]bool)
	}
	h.m[l.Key()][l] = true
	valid := 0
	for other := range h.m[l.Key()] {
		if other.Err() == nil {
			valid++
		}
	}
	if valid > 1 {
		h.t.Errorf("seed %d: %d hold one key", h.seed, valid)
	}
}

func (h *holders) leave(l *Lock) {
	h.mu.Lock()
	defer h.mu.Unlock()
	delete(h.m[l.Key()], l)
}
