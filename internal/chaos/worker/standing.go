package worker

import (
	"context"
	"errors"
	"strconv"
	"time"

	"github.com/latchkey-go/latchkey/internal/chaos/history"
	"github.com/latchkey-go/latchkey/sqllock"
	"github.com/latchkey-go/latchkey/sqllock/election"
)

// termKeys is how many keys have a leader.
const termKeys = 2

func termKey(i int) sqllock.Key { return sqllock.Namespace("terms").Key(strconv.Itoa(i)) }

// LongestPause is the longest that a process pauses after a term of its own.
const LongestPause = 200 * time.Millisecond

// A standing caller stands for leader of a key.
type standing struct {
	caller
	campaign *election.Campaign
	locks    *termLocks
}

func newStanding(c caller, key sqllock.Key) *standing {
	locks := &termLocks{Session: c.w.session, caller: c}
	return &standing{c, election.New(locks, key, election.WithBackoff(LongestPause/10, LongestPause)), locks}
}

// run stands until resting ends. Run returns before that if the database is one
// where locks do not exclude, such as a standby.
func (c *standing) run(resting context.Context) {
	for resting.Err() == nil {
		_ = c.campaign.Run(resting, c.lead)
		c.locks.finish()
		_ = Pause(resting, LongestPause)
	}
}

// errFailed is that of a leader that fails.
var errFailed = errors.New("worker: this leader failed")

// lead leads for a while, or until its context ends. It looks at its lock and at
// its Status meanwhile, and writes behind the fence.
func (c *standing) lead(ctx context.Context) error {
	held := c.locks.held
	held.Hold.Token = c.campaign.Status().Token
	now := history.Now()
	noteAt, end, writeAt := now, now+history.Moment(c.term()), now
	resigns := c.chance(20)
	for ; held.Look() && now < end && ctx.Err() == nil; now = history.Now() {
		c.lookAtStatus(held)
		if now >= noteAt {
			c.w.noteHold(held.Hold)
			noteAt = now + noteEvery
		}
		if now >= writeAt {
			c.write(held)
			writeAt = history.Now() + history.Moment(c.upTo(100*time.Millisecond))
			continue
		}
		time.Sleep(LookEvery)
	}
	if resigns && ctx.Err() == nil {
		c.campaign.Resign()
		<-ctx.Done()
	}
	if held.Told() { // a leader that does not care
		for range 4 {
			c.lookAtStatus(held)
			held.Look()
		}
		c.write(held)
	}
	held.Hold.UnlockBegin = history.Now()
	if c.chance(20) {
		return errFailed
	}
	return nil
}

// lookAtStatus notes that the Status said that this process leads.
func (c *standing) lookAtStatus(held *ObservedLock) {
	before := history.Now()
	if c.campaign.Status().Leader {
		held.Hold.Leads = before
	}
}

// term is how long a leader leads if nothing ends its term.
func (c *standing) term() time.Duration {
	if c.chance(25) {
		return c.upTo(2 * c.w.config.Lease)
	}
	return c.upTo(250 * time.Millisecond)
}

// termLocks are the locks of a Session, for one Campaign. They are written down.
type termLocks struct {
	*sqllock.Session
	caller caller
	held   *ObservedLock // that of the last term; nil: there was none, or it is written down
}

// Lock notes the end of the term before, and then the call.
func (l *termLocks) Lock(ctx context.Context, key sqllock.Key) (*sqllock.Lock, error) {
	l.finish()
	w := l.caller.w
	try := history.Try{Process: w.config.Process, Key: key.Int64(), Waits: true, Kind: history.Term, Begin: history.Now()}
	lock, err := l.Session.Lock(ctx, key)
	try.End, try.Result = history.Now(), ResultOf(err)
	l.caller.count(err, try.Begin)
	if err == nil {
		try.Lock = w.number()
	}
	w.note(history.Event{Try: &try})
	if err == nil {
		l.held = w.observe(lock, try.Lock, false)
		l.held.Hold.Kind = try.Kind
		w.noteHold(l.held.Hold)
	}
	return lock, err
}

// finish notes the end of the last term. The Campaign has unlocked its lock
// before.
func (l *termLocks) finish() {
	if l.held == nil {
		return
	}
	hold := &l.held.Hold
	hold.Ended = history.Now()
	if hold.UnlockBegin == 0 { // it was lost before the term began
		hold.UnlockBegin = hold.From
	}
	hold.Unlock = history.OK
	if l.held.Told() {
		hold.Unlock, hold.Told = history.Lost, history.Moment(l.held.told.Load())
	}
	l.caller.w.noteHold(*hold)
	l.held = nil
}
