package sqllock

import (
	"context"
	"slices"
	"time"
)

// Calls of a ConnLocker: how they end, and how those that wait come into the
// registry of a Session.

// acquireQuietly acquires key. When it returns, no statement of this call comes
// between those of the owner.
func (c *ConnLocker) acquireQuietly(ctx context.Context, key Key, w want) (*Lock, error) {
	c.sendLater()
	var waits []*distantWait
	if w.waits {
		waits = noteDistantWaits(ctx, key, c.lookLater)
		defer endWaits(waits) // also if ctx panics
	}
	lock, err := c.table.acquire(ctx, key, w)
	endWaits(waits)
	if len(waits) > 0 || err != nil && ctx.Err() != nil {
		c.awaitQuiet(key, waits)
	}
	return lock, err
}

// awaitQuiet waits until no statement for key, whose call was given up, is under
// way, and none that looks for one of waits, which have ended. Such a statement
// would come between those of the owner.
func (c *ConnLocker) awaitQuiet(key Key, waits []*distantWait) {
	timer := time.NewTimer(c.table.timeout)
	defer timer.Stop()
	for {
		c.table.mu.Lock()
		k, stepped := c.table.keys.of(key.id()), c.stepped
		quiet := (k == nil || !k.orphaned()) && !slices.Contains(waits, c.looking)
		c.table.mu.Unlock()
		if quiet {
			return
		}
		select {
		case <-stepped:
		case <-timer.C:
			c.table.mu.Lock()
			c.mistrustLocked()
			c.table.mu.Unlock()
			return
		}
	}
}

// lookLater has the connection look, between two of its statements, whether w is
// in the database of its Session.
func (c *ConnLocker) lookLater(w *distantWait) {
	c.table.mu.Lock()
	defer c.table.mu.Unlock()
	c.distant = append(c.distant, w)
	c.sendLocked()
}

// lookForSession looks for one of distant. It reports whether there may be more
// to do. If there is not, no goroutine works any more.
func (c *ConnLocker) lookForSession() (more bool) {
	c.table.mu.Lock()
	if len(c.distant) == 0 {
		c.running = len(c.queue) > 0
		defer c.table.mu.Unlock()
		return c.running
	}
	w := c.distant[0]
	c.distant = c.distant[1:]
	c.looking = w // before it is seen whether w lasts, since a call ends w and then waits for the look
	c.table.mu.Unlock()
	if w.lasts() {
		if same, err := c.conn.IsNeighbour(w.process); same && err == nil { // the next try finds out about a broken connection
			w.noted()
		}
	}
	c.table.mu.Lock()
	defer c.table.mu.Unlock()
	c.looking = nil
	c.stepLocked()
	return true
}

// serverProcess returns the process that has the locks.
func (c *ConnLocker) serverProcess(*Lock) int64 { return c.conn.PID() }
