package check

import (
	"time"

	"github.com/latchkey-go/latchkey/internal/chaos/history"
)

// A Long is a call that took longer than it may. One that waits has its deadline
// in addition.
type Long struct {
	Process int
	Key     int64
	Unlock  bool
	At      history.Moment
	Took    time.Duration // after its deadline if it waits; without the time in which its process could not run
}

// long checks how long c took.
func (s *sweep) long(c call, key int64) {
	begin := c.begin
	if c.waits {
		begin = c.until
	}
	if s.callTimeout == 0 || c.waits && c.until == 0 || span(begin, c.end) <= s.callTimeout {
		return
	}
	took := c.end - begin
	for _, still := range []Times{s.frozen, s.starved} {
		took -= still.covered(c.process, begin, c.end)
	}
	bound := s.callTimeout
	if !c.unlock && s.slow.touch(c.process, begin, c.end) {
		bound *= 2
	}
	if time.Duration(took) > bound {
		s.report.Long = append(s.report.Long, Long{Process: c.process, Key: key, Unlock: c.unlock, At: c.begin, Took: time.Duration(took)})
	}
}
