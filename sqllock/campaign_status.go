package sqllock

import (
	"time"
)

// A CampaignStatus is what [Campaign.Status] tells, for a health check.
type CampaignStatus struct {
	// Leader: this process leads at the moment of the call. It is the lock's Err
	// at the call, so that a process that was frozen past its lease does not call itself
	// leader when it wakes. It stays true while a leader that resigns winds up.
	Leader bool

	// Since is when the term began; the zero Time if Leader is false.
	Since time.Time

	// Token is the fencing token of the term's lock, drawn when the term begins. Of
	// two terms the later has the greater token, as strings compare, whichever
	// process leads. So a system outside the database can reject a past leader.
	//
	// This holds within one history of one database system. Two standbys that are
	// promoted separately are two histories, whose tokens do not compare. [Fence]
	// tells them apart; the string alone does not.
	//
	// Token is empty if Leader is false, for a lock without a token (of Memory, PerTx
	// and OnConn), and if the database did not give one.
	Token string

	// Terms counts those that this Campaign has begun.
	Terms int

	// Err is why this process does not lead, if that is known: ErrLost or
	// ErrResigned, with the function's own error if it had one; or that; or the
	// locker's. nil while leading, while the first election is awaited,
	// and after a function that returned nil.
	Err error
}

// Status tells whether this process leads. It never blocks, and may be called
// before, while and after Run runs.
func (c *Campaign) Status() CampaignStatus {
	c.mu.Lock()
	now, s := c.now, CampaignStatus{Terms: c.terms, Err: c.err}
	c.mu.Unlock()
	if now.lock == nil {
		return s
	}
	if s.Err = now.lock.Err(); s.Err == nil {
		s.Leader, s.Since, s.Token = true, now.since, now.token
	}
	return s
}
