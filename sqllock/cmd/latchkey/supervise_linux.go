package main

import (
	"cmp"
	"context"
	"errors"
	"io/fs"
	"os/exec"
	"syscall"
	"time"

	"github.com/latchkey-go/latchkey/sqllock"
)

// How a command runs under its lock, and how it ends when the lock is lost.

// runUnderLock acquires the lock and runs the command. The error has the exit
// code, that of the command included.
func runUnderLock(parent context.Context, db *database, r *runConfig) error {
	signals := catchSignals()
	defer signals.stop()
	ctx, stopWaiting := signals.endOn(parent)
	defer stopWaiting() //nolint:errcheck // a second call

	session, err := r.session(ctx, db)
	if err != nil {
		return err
	}
	defer session.Close()
	lock, err := r.acquire(ctx, session)
	if err != nil {
		return err
	}
	defer lock.Unlock() //nolint:errcheck // a second call; the end of a command reports the first

	w := newWatchedLock(session, lock, r)
	env := r.environment(ctx, lock)
	if err := w.delay(ctx, r.lockDelay); err != nil {
		return err
	}
	if err := stopWaiting(); err != nil {
		return err
	}
	r.say("executing %s", r.command[0])
	c, err := startChild(w, openConnections(), r.command, env)
	switch {
	case errors.Is(err, errGuard):
		return exit(exitLost, "the command did not begin: %w", cmp.Or(lock.Err(), err))
	case err != nil:
		return notRun(r.command[0], err)
	}
	w.supervise(c, signals)
	code, known := c.end()
	if !known && w.lost == nil {
		w.lost = errGuard
	}
	if err := lock.Unlock(); w.lost == nil && errors.Is(err, sqllock.ErrLost) {
		return exit(exitLost, "the lock was lost before the command ended: another one may have run at the same time")
	}
	if w.lost != nil {
		return exit(exitLost, "the lock was lost, and the command was ended (%w)", w.lost)
	}
	return silent(code)
}

// notRun returns the error of a command that was not executed. It has what the
// system said.
func notRun(command string, err error) error {
	code := exitNotRun
	var path *fs.PathError
	var program *exec.Error
	switch {
	case errors.Is(err, syscall.ENOMEM), errors.Is(err, syscall.EAGAIN):
		code = exitSystem
	case errors.As(err, &path): // its text has the path once more
		err = path.Err
	case errors.As(err, &program):
		err = program.Err
	}
	return exit(code, "failed to execute %s: %w", command, err)
}

// A watchedLock is the lock of a command, and what is known of its lease.
//
// Invariant: killAt is no later than the moment at which the server may grant
// the lock to another, unless --kill-after says otherwise. It only rises, until
// the lock is lost.
type watchedLock struct {
	session *sqllock.Session
	lock    *sqllock.Lock
	lease   time.Duration // of the server
	margin  time.Duration // from the end of the lease here to SIGKILL
	sudden  time.Duration // from a loss without warning to SIGKILL
	rows    bool          // the lock is a row of a table, and outlives a connection

	giveUpAt time.Duration // by bootTime: the lock is given up here
	lost     error         // why the command was ended; nil: it was not
}

func newWatchedLock(s *sqllock.Session, lock *sqllock.Lock, r *runConfig) *watchedLock {
	lease := s.Stats().Lease
	// The lock is given up a fifth of the lease before the server frees it. Half of
	// that is for the command to end, and half for clocks and late timers.
	w := &watchedLock{session: s, lock: lock, lease: lease, margin: lease / 10, sudden: r.lockDelay / 2,
		rows: r.table || s.Dialect() == sqllock.SQLite}
	if r.killAfter > 0 {
		w.margin, w.sudden = r.killAfter, r.killAfter
	}
	w.renew()
	return w
}

// renew looks at the lease. It reports whether the lock is held.
func (w *watchedLock) renew() bool {
	now := bootTime() // first: what remains is then counted from too early
	remaining := w.session.Stats().LeaseRemaining
	if w.lock.Err() != nil { // after it: what remained was that of the lock's connection
		return false
	}
	w.giveUpAt = max(w.giveUpAt, now+remaining)
	return true
}

// killAt is when the guard sends SIGKILL.
func (w *watchedLock) killAt() time.Duration { return w.giveUpAt + w.margin }

// grace is the time from SIGTERM to SIGKILL. If the lease has run out, the
// server still keeps the lock for a while. Otherwise it was freed without
// warning, and the next holder waits for its --lock-delay.
func (w *watchedLock) grace() time.Duration {
	if bootTime() >= w.giveUpAt {
		return max(0, w.killAt()-bootTime())
	}
	return w.sudden
}

// delay waits for --lock-delay. A holder whose connection was cut has ended its
// command by then.
func (w *watchedLock) delay(ctx context.Context, lockDelay time.Duration) error {
	select {
	case <-time.After(lockDelay):
	case <-w.lock.Context().Done():
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	if !w.renew() {
		return exit(exitLost, "the lock was lost before the command began: %w", w.lock.Err())
	}
	return nil
}

// beatsOfLease is how often in a lease latchkey run looks at it and tells the guard.
const beatsOfLease = 40

var errGuard = errors.New("the guard process has ended, or does not respond")

// supervise returns when the command has ended. It passes signals on, and ends
// the command if the lock is lost. Without its guard a command ends at once.
func (w *watchedLock) supervise(c *child, signals *signals) {
	beat := time.NewTicker(max(w.lease/beatsOfLease, 10*time.Millisecond))
	defer beat.Stop()
	lockEnded := w.lock.Context().Done()
	var kill <-chan time.Time
	for {
		held, guarded := true, true
		select {
		case n, ok := <-c.notices:
			c.unheard, guarded = 0, ok
			switch {
			case ok && n.Of == stopped:
				c.suspendWithIt()
			case ok && n.Of == ended:
				if w.lost != nil {
					endGroup(c.pid) // what is left of it
				}
				return
			}
		case s := <-signals.c:
			// If the lock was lost while the command was stopped, it must not go on.
			if held = s != syscall.SIGCONT || w.lost != nil || w.renew(); held {
				c.pass(s)
			}
		case <-beat.C:
			if held = w.lost != nil || w.renew(); held {
				guarded = c.extend(w.killAt())
			}
		case <-lockEnded:
			held, lockEnded = false, nil
		case <-kill:
			endGroup(c.pid)
			return
		}
		switch {
		case !guarded:
			w.lost = cmp.Or(w.lost, errGuard)
			endGroup(c.pid)
			return
		case !held && w.lost == nil:
			w.lost = w.lock.Err()
			c.signal(syscall.SIGTERM) // a stopped process stays stopped: it would go on without the lock
			kill = time.After(w.grace())
		}
	}
}
