package sqllock

import (
	"time"
)

// watchAfter is how long a connection is silent before its socket is watched:
// while there is traffic, that notices a closed connection by itself.
const watchAfter = 20 * time.Millisecond

// run sends what is queued, and heartbeats while nothing is, until l is dead.
// It alone uses the session, and ends it.
func (l *lease) run() {
	defer close(l.stopped)
	defer l.watch.stop()
	defer l.session.Destroy()
	every := l.backend.s.options.heartbeat
	quiet := min(watchAfter, every)
	timer := time.NewTimer(quiet)
	defer timer.Stop()
	soon := true // the timer fires within quiet
	l.tend()
	last := now() // when a statement was last answered, about
	for {
		due := false
		select {
		case <-l.backend.wake:
		case <-l.watch.readable():
			due = true
		case <-timer.C:
			silent := now() - last
			if silent < quiet {
				timer.Reset(quiet - silent)
				continue
			}
			due = silent >= every
			l.watch.arm()
			timer.Reset(max(every-silent, 0))
			soon = false
		case <-l.gone:
		}
		if l.dead.Load() {
			l.backend.signal() // the token may have been for the next connection
			return
		}
		if due && l.spare() {
			return
		}
		for l.exchange(due) {
			due = false
			last = now()
			if !soon { // else it is left alone until it fires
				timer.Reset(quiet)
				soon = true
			}
		}
	}
}

// exchange sends what is queued in one statement, or nothing but a heartbeat if
// due. It reports whether it sent anything and l lives.
func (l *lease) exchange(due bool) bool {
	sent := l.drawTokens()
	if l.looks || due || l.flight.sent-l.tended >= l.backend.s.options.heartbeat {
		tended := l.tend()
		if tended && due { // which was the heartbeat
			l.backend.s.countBeat()
		}
		sent = sent || tended
	}
	sent = l.stakeClaims() || sent
	sent = l.register(due) || sent
	if !l.take(l.gather(), due && !sent) {
		return sent && !l.dead.Load()
	}
	l.watch.expect()
	err := l.session.Exchange(&l.flight.batch)
	l.watch.answered()
	switch {
	case err == nil:
		return l.settle()
	case survived(err):
		return l.reconcile(fromDialect(err))
	}
	l.lose(err.Error())
	return false
}

// tend does what is due once a heartbeat beside the statements of locks, and
// before the first of them. It reports whether it sent anything.
func (l *lease) tend() bool {
	due := l.tended == 0 || now()-l.tended >= l.backend.s.options.heartbeat
	sent := false
	if due {
		l.tended = now()
		sent = l.endLeft()
	}
	return l.look(due) || sent
}

// spare reports whether l's backend is not needed any more, and ends it then:
// it is not the first and has been without locks for a while.
func (l *lease) spare() bool {
	const enough = 15
	s := l.backend.s
	s.table.mu.Lock()
	defer s.table.mu.Unlock()
	if l.backend == s.backends[0] || l.backend.loadLocked() > 0 {
		l.idle = 0
		return false
	}
	l.idle++
	if l.idle < enough {
		return false
	}
	s.removeLocked(l.backend)
	l.retireLocked()
	return true
}
