package httpmw

import (
	"maps"
	"slices"
	"sync"
	"time"
)

// readCheck is how long a Read may continue after the end of its handler's
// context.
const readCheck = 50 * time.Millisecond

// bodyReads is the set of bodies of a Middleware that are being read. One
// goroutine checks all of them from time to time, while there are any. Most
// reads end in an instant, so a [context.AfterFunc] for each would cost more.
type bodyReads struct {
	mu      sync.Mutex // protects the fields below
	bodies  map[*heldBody]struct{}
	watched bool // the goroutine runs
}

func (s *bodyReads) add(b *heldBody) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.bodies == nil {
		s.bodies = make(map[*heldBody]struct{})
	}
	s.bodies[b] = struct{}{}
	if !s.watched {
		s.watched = true
		go s.watch()
	}
}

func (s *bodyReads) remove(b *heldBody) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.bodies, b)
}

func (s *bodyReads) watch() {
	for {
		time.Sleep(readCheck)
		bodies := s.current()
		if len(bodies) == 0 {
			return
		}
		for _, b := range bodies {
			b.interrupt()
		}
	}
}

// current returns the bodies that are being read. If there are none, the
// goroutine must end.
func (s *bodyReads) current() []*heldBody {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.watched = len(s.bodies) > 0
	return slices.Collect(maps.Keys(s.bodies))
}
