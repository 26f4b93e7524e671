package session

import (
	"math"
	"runtime"
	"time"

	"github.com/latchkey-go/latchkey/internal/dialect"
	"github.com/latchkey-go/latchkey/internal/keytable"
)

// exchange sends a batch, if something is queued or beat says that a statement
// must be sent. It reports whether it did, and c lives.
func (c *connection) exchange(beat bool) bool {
	if !c.prepare(c.coalesce(), beat) {
		c.s.Table.Look() // callers that wait may have been denied
		return false
	}
	c.watch.expect()
	err := c.session.Exchange(&c.statement)
	c.watch.answered()
	if err != nil {
		return c.reconcile(err)
	}
	return c.completeBatch()
}

// prepare takes a batch of up to limit keys off the table, and makes a statement
// of it. That comes first, because the table forgets the keys of the batch if c
// is lost before the statement is sent. It reports whether to send the statement.
func (c *connection) prepare(limit int, beat bool) bool {
	s := c.s
	s.mu.Lock()
	defer s.mu.Unlock()
	if c.dead.Load() {
		return false
	}
	limits := c.limits(limit)
	if !limits.ReleasesOnly {
		s.queued.Store(0)
	}
	some := s.Table.Prepare(&c.owner, limits, &c.batch)
	if s.isFull(c) && c.batch.Brings() > 0 && s.mayGrow() {
		s.grow()
	}
	c.brings = c.batch.Brings()
	if c.batch.Starved {
		s.lookFirst(c)
	}
	s.passOn(c)
	if !some && !beat {
		return false
	}
	c.codec.encode(&c.batch, &c.statement)
	c.sending()
	return true
}

// limits returns what a batch of up to so many keys may carry.
func (c *connection) limits(keys int) keytable.Limits {
	s := c.s
	room := c.session.Room()
	limits := keytable.Limits{Keys: min(keys, room), Most: min(s.options.MaxHeld, room), TooBig: ErrTooBig}
	limits.ReleasesOnly = s.chosen() != c
	if !s.options.Dialect.Traits().Readers {
		limits.NoShared = ErrReaders
	}
	s.limit(&limits, c)
	return limits
}

// completeBatch acts on the response to the batch. It reports whether c lives.
// If the server did not have a lock that the batch released, other locks may be
// gone too, and c is lost. A response that comes after the lease grants nothing.
func (c *connection) completeBatch() bool {
	if c.statement.NotHeld {
		c.lose(lossUnlock)
		return false
	}
	c.codec.decode(&c.statement, &c.batch)
	return c.answered(c.statement.Keys(), func() {
		c.failed, c.brings = 0, 0
		c.woken = c.s.Table.Complete(&c.owner, &c.batch, Now())
		c.s.passOn(c)
	})
}

// answered notes that the statement under way, with so many keys, was answered,
// and calls act with s.mu held. If the response is too late, c is lost instead.
// It reports whether c lives.
func (c *connection) answered(keys int, act func()) bool {
	s := c.s
	s.mu.Lock()
	took, ok := c.renew()
	if !ok {
		s.mu.Unlock()
		c.lose(lossLease)
		return false
	}
	s.counters.exchanged(took, keys)
	if keys > 0 {
		c.roundTrip, s.used = took, Now()
	}
	act()
	s.mu.Unlock()
	for i := range s.options.Observers {
		if o := &s.options.Observers[i]; o.Exchanged != nil {
			o.Exchanged(took, keys)
		}
	}
	if keys > 0 {
		s.Table.look(c.batch.Polls)
	}
	return true
}

// A codec translates a batch of the table into one of the dialect, and back. It
// has memory for the next one.
type codec struct {
	keys   []dialect.Key
	levels [][]dialect.Key
	busy   map[dialect.Key]struct{}
}

// DBKey returns the key of k as the dialect knows it.
func DBKey(id keytable.ID, m keytable.Mode) dialect.Key {
	key := dialect.Key{Space: dialect.Space(id.Space), ID: id.Number}
	if m == keytable.Shared {
		return key.Shared()
	}
	return key
}

// encode fills st with b. A look for a single key goes into Try, which costs the
// server less.
func (c *codec) encode(b *keytable.Batch, st *dialect.Batch) {
	st.Reset()
	c.keys, c.levels = c.keys[:0], c.levels[:0]
	for i := range b.Releases {
		st.Release = append(st.Release, DBKey(b.Releases[i].ID(), b.Releases[i].Mode()))
	}
	for i := range b.Looks {
		l := &b.Looks[i]
		if len(l.Keys) == 1 {
			st.Try = append(st.Try, DBKey(l.Keys[0].ID(), l.Keys[0].Mode()))
			continue
		}
		st.Looks = append(st.Looks, dialect.Look{Keys: c.keysOf(l.Keys), Want: l.Want, Won: l.Won[:0]})
	}
	for i := range b.Stacks {
		s := &b.Stacks[i]
		from := len(c.levels)
		for _, keys := range s.Levels {
			c.levels = append(c.levels, c.keysOf(keys))
		}
		st.Stacks = append(st.Stacks, dialect.Stack{Levels: c.levels[from:len(c.levels):len(c.levels)], Won: s.Won[:0]})
	}
}

func (c *codec) keysOf(states []*keytable.State) []dialect.Key {
	from := len(c.keys)
	for _, k := range states {
		c.keys = append(c.keys, DBKey(k.ID(), keytable.Exclusive))
	}
	return c.keys[from:len(c.keys):len(c.keys)]
}

// first is what a look for a single key has got.
var first = []int{0}

// decode notes the response of st in b.
func (c *codec) decode(st *dialect.Batch, b *keytable.Batch) {
	clear(c.busy)
	for _, key := range st.Busy {
		if c.busy == nil {
			c.busy = make(map[dialect.Key]struct{})
		}
		c.busy[key] = struct{}{}
	}
	try, look := 0, 0
	for i := range b.Looks {
		l := &b.Looks[i]
		if len(l.Keys) > 1 {
			l.Won = st.Looks[look].Won
			look++
			continue
		}
		if _, busy := c.busy[st.Try[try]]; !busy {
			l.Won = first
		}
		try++
	}
	for i := range b.Stacks {
		b.Stacks[i].Won, b.Stacks[i].Failed = st.Stacks[i].Won, st.Stacks[i].Failed
	}
}

// callerWork is about the time in which one of many callers gets its response
// and makes its next request.
const callerWork = 2 * time.Microsecond

// halves reports whether two statements are faster than one for so many
// callers. One is then under way while the callers of the other make their next
// requests.
//
// The network takes L there and back, the server's work takes S, and that of
// the callers takes C. One statement for all takes L + S + C. Two halves take
// 2L + S, or C if that is longer. So halves win where L < C. The round trip is
// L and some of S. This is so with a database nearby and hundreds of callers.
// Across a slow network one statement carries all.
func (c *connection) halves(callers int) bool {
	return c.roundTrip < time.Duration(callers)*callerWork
}

// coalesce gives callers time to queue their next requests, for as long as the
// queue grows. So the callers that one statement has answered are in the next.
// It sets no timer. It returns at once where no goroutine is ready to run, and
// gives up where the processor is busy with other work.
//
// It returns how many keys the next statement carries at most. Where it pays,
// the limit is half of the queue (see halves). From then on half of the callers
// are always queued when the response for the other half comes, and coalesce has
// nothing to wait for.
func (c *connection) coalesce() (limit int) {
	const (
		all     = math.MaxInt
		timeout = time.Millisecond // thousands of callers take less; a busy processor's turn takes more
	)
	queued := int(c.s.queued.Load())
	if queued >= fullStatement && c.halves(queued+c.woken) {
		return all
	}
	began := Now()
	for range 16 { // callers may keep coming
		runtime.Gosched()
		before := queued
		if queued = int(c.s.queued.Load()); queued == before || Now()-began > timeout {
			break
		}
	}
	if queued >= 2*fullStatement && c.halves(queued) {
		return queued / 2
	}
	return all
}
