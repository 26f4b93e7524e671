package worker

import (
	"context"
	"time"

	"github.com/latchkey-go/latchkey/internal/chaos/history"
	"github.com/latchkey-go/latchkey/sqllock"
)

// A mixed caller uses readers, sets, groups, limits and stacks, again and again.
// Its keys are not those of other callers, except for exclusive locks of the
// readers' keys and of the sets' keys, which it acquires too.
type mixed struct{ caller }

// A call is one request of a mixed caller. It brings a lock of each place, or
// none.
type call struct {
	kind    history.Kind
	waits   bool
	limit   time.Duration // of its context
	wait    time.Duration // that its limiters allow; 0: limit alone counts
	places  []place
	request func(context.Context) (sqllock.Locks, error)
}

// A place is where one lock of a call comes from.
type place struct {
	key   int64 // for the history, if there is no lock
	limit *limit
}

// A taken is a lock, and what the history is to say of it.
type taken struct {
	*sqllock.Lock
	number int64
	kind   history.Kind
	history.Limited
}

func (c *mixed) run(draining context.Context) {
	for draining.Err() == nil {
		if locks := c.take(); len(locks) > 0 {
			c.hold(draining, locks)
		}
		_ = Pause(draining, c.upTo(4*time.Millisecond))
	}
}

// take makes a call and notes a line for each of its places.
func (c *mixed) take() (locks []taken) {
	a := c.choose()
	ctx, cancel := context.WithTimeout(context.Background(), a.limit)
	defer cancel()
	begin := history.Now()
	got, err := a.request(ctx)
	end := history.Now()
	c.count(err, begin)
	try := history.Try{
		Process: c.w.config.Process, Call: c.w.number(), Waits: a.waits, Kind: a.kind, Until: a.until(begin),
		Begin: begin, End: end, Result: ResultOf(err),
	}
	if a.kind == history.Set || a.kind == history.Groups || a.kind == history.Stack {
		try.All = len(a.places)
	}
	for i, p := range a.places {
		of := try
		of.Key = p.key
		if p.limit != nil {
			of.Limited = history.Limited{Limit: p.key, Most: p.limit.most(begin, end)}
		}
		switch {
		case err != nil:
		case i < len(got) && got[i] != nil:
			of.Key, of.Lock = got[i].Key().Int64(), c.w.number()
			locks = append(locks, taken{got[i], of.Lock, of.Kind, of.Limited})
		default: // it was to be granted, and was not
			of.Result = history.GaveUp
		}
		c.w.note(history.Event{Try: &of})
	}
	return locks
}

// until is the deadline of a call that began at begin.
func (a call) until(begin history.Moment) history.Moment {
	if a.wait > 0 {
		return begin + history.Moment(min(a.limit, a.wait))
	}
	return begin + history.Moment(a.limit)
}

// hold holds all of locks for a while and gives them back in random order.
func (c *mixed) hold(draining context.Context, locks []taken) {
	all := make([]*ObservedLock, len(locks))
	for i, l := range locks {
		all[i] = c.w.observe(l.Lock, l.number, false)
		all[i].Hold.Kind, all[i].Hold.Limited = l.kind, l.Limited
	}
	noteAt, end := history.Moment(0), history.Now()+history.Moment(c.length())
	for now := history.Now(); look(all) && now < end && draining.Err() == nil; now = history.Now() {
		if now >= noteAt {
			for _, w := range all {
				c.w.noteHold(w.Hold)
			}
			noteAt = now + noteEvery
		}
		time.Sleep(LookEvery)
	}
	for _, i := range c.rng.Perm(len(all)) {
		c.w.noteHold(all[i].GiveBack())
	}
}

// look reports whether all locks are held, by their Err.
func look(all []*ObservedLock) bool {
	ok := true
	for _, w := range all {
		ok = w.Look() && ok
	}
	return ok
}

// length is how long locks are held if they are not lost. It is shorter than
// that of plain callers, since places are few.
func (c *mixed) length() time.Duration {
	switch n := c.rng.IntN(200); {
	case n < 1:
		return c.upTo(c.w.config.Lease)
	case n < 16: // some outlast a limit that goes down
		return c.upTo(300 * time.Millisecond)
	default:
		return c.upTo(15 * time.Millisecond)
	}
}
