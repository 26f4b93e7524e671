package worker

import (
	"context"
	"strconv"
	"time"

	"github.com/latchkey-go/latchkey/sqllock"
)

// A brisk caller tries for a lock, holds it for a moment and gives it back, as
// often as it can. A quarter of its calls is for keys that other callers want too,
// and hold for longer.
type brisk struct{ caller }

// briskKeys is how many keys brisk callers have for themselves.
const briskKeys = 96

func briskKey(i int) sqllock.Key { return sqllock.Namespace("brisk").Key(strconv.Itoa(i)) }

func (c *brisk) run(draining context.Context) {
	for draining.Err() == nil {
		key := briskKey(c.rng.IntN(briskKeys))
		if c.chance(25) {
			key = Key(c.rng.IntN(c.w.config.Keys))
		}
		if lock, number := c.ask(request{keys: []sqllock.Key{key}}); lock != nil {
			c.hold(draining, c.w.observe(lock, number, false))
		}
		_ = Pause(draining, c.upTo(time.Millisecond))
	}
}

// hold looks at a lock twice. The line of its Try is its trace if the process is
// killed meanwhile.
func (c *brisk) hold(draining context.Context, w *ObservedLock) {
	if w.Look() {
		if c.chance(50) {
			_ = Pause(draining, c.upTo(time.Millisecond))
		}
		w.Look()
	}
	c.w.noteHold(w.GiveBack())
}
