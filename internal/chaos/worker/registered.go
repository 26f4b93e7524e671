package worker

import (
	"context"
	"strconv"
	"strings"
	"time"

	"github.com/latchkey-go/latchkey/internal/chaos/history"
	"github.com/latchkey-go/latchkey/sqllock"
)

// longKeys is how many keys there are that callers hold for long.
const longKeys = 4

func longKey(i int) sqllock.Key { return sqllock.Namespace("long").Key(strconv.Itoa(i)) }

// registry returns the options of a Session that writes to the registry. Only
// PostgreSQL's advisory locks have one.
func (o Config) registry() []sqllock.Option {
	if o.Services == 0 || !o.sharesLocks() {
		return nil
	}
	return []sqllock.Option{sqllock.WithRegistry(""), sqllock.WithHolder(holderPrefix + strconv.Itoa(o.Process))}
}

// What the registry shows of a process and of a lock begins with these.
const (
	holderPrefix = "process "
	lockPrefix   = "lock "
)

func lockName(number int64) string { return lockPrefix + strconv.FormatInt(number, 10) }

// NumbersOf returns the process and the lock that texts of the registry name.
// A number is 0 if its text names none.
func NumbersOf(holder, name string) (process int, lock int64) {
	process, _ = strconv.Atoi(strings.TrimPrefix(holder, holderPrefix))
	lock, _ = strconv.ParseInt(strings.TrimPrefix(name, lockPrefix), 10, 64)
	return process, lock
}

// A registered caller holds locks so long that the registry shows them, and asks
// how long others are held.
type registered struct{ caller }

func (c *registered) run(resting context.Context) {
	for resting.Err() == nil {
		if held, _ := c.taken(longKey(c.rng.IntN(longKeys))); held != nil {
			c.hold(resting, held)
		}
		c.ask()
		_ = Pause(resting, c.upTo(50*time.Millisecond))
	}
}

// hold holds a lock for up to three leases.
func (c *registered) hold(resting context.Context, held *ObservedLock) {
	now := history.Now()
	noteAt, end := now, now+history.Moment(c.upTo(3*c.w.config.Lease))
	for ; held.Look() && now < end && resting.Err() == nil; now = history.Now() {
		if now >= noteAt {
			c.w.noteHold(held.Hold)
			c.ask()
			noteAt = now + noteEvery
		}
		time.Sleep(4 * LookEvery)
	}
	c.w.noteHold(held.GiveBack())
}

// ask asks for the age of a key, whoever holds it.
func (c *registered) ask() {
	key := longKey(c.rng.IntN(longKeys))
	a := history.Age{Process: c.w.config.Process, Key: key.Int64(), Begin: history.Now()}
	age, ok := c.w.session.HeldFor(key)
	a.End = history.Now()
	a.For, a.OK = history.Moment(age), ok
	c.w.note(history.Event{Serviced: history.Serviced{Age: &a}})
}
