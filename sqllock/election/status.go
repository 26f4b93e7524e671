package election

import "time"

// A Status is what [Campaign.Status] reports, for a health check.
type Status struct {
	// Leader reports whether this process leads at the moment of the call. It
	// goes by Err of the lock at the call. So a process that was frozen past
	// its lease does not call itself leader when it wakes. Leader stays true
	// while a leader that resigns finishes.
	Leader bool

	// Since is when the term began, or the zero Time if Leader is false.
	Since time.Time

	// Token is the fencing token of the term's lock, drawn when the term
	// begins: see [sqllock.Lock.Token]. Of two terms the later has the greater
	// token, as strings compare, whichever process leads. A system outside the
	// database can use it to reject a past leader.
	//
	// Token is empty in these cases:
	//   - Leader is false.
	//   - The lock has no token: it is of Memory, PerTx or OnConn.
	//   - The database rejects the statement that draws one.
	//   - The pool lends no connection for it. MySQL, MariaDB and lease tables
	//     need one.
	//
	// While the database does not respond, or accepts no connection, no term
	// begins.
	Token string

	// Terms counts the terms that this Campaign has begun.
	Terms int

	// Err is the known reason why this process does not lead:
	//   - ErrLost or ErrResigned, joined by an error of the function;
	//   - an error of the function alone;
	//   - an error of the Locker.
	//
	// Err is nil while this process leads, before the first election, and after
	// a function that returned nil.
	Err error
}

// Status reports whether this process leads. It never blocks. It may be called
// before, during and after Run.
func (c *Campaign) Status() Status {
	c.mu.Lock()
	now, s := c.now, Status{Terms: c.terms, Err: c.err}
	c.mu.Unlock()
	if now.lock == nil {
		return s
	}
	if s.Err = now.lock.Err(); s.Err == nil {
		s.Leader, s.Since, s.Token = true, now.since, now.token
	}
	return s
}
