package sqllock

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/latchkey-go/latchkey/internal/dialect"
)

// A table is who in this process holds or wants which key, for every locker: a
// second caller of the process is answered here, without the database.
//
// It is keyed by what the database sees, since one database session may take
// the same advisory lock twice: two names with one id exclude each other too.
//
// Invariant: a key is in entries exactly while it is held, being taken, being
// given back or waited for; memory is bounded by calls and locks, not by keys
// ever seen.
type table struct {
	source      source
	handOver    time.Duration // how long keys may pass from hand to hand in this process; 0: not at all, forever: without end
	patience    time.Duration // a try or an unlock that has no answer for so long fails; 0: the source sees to that
	silence     func()        // called when patience is used up; may be nil
	asyncUnlock bool

	// For reuse. The table's own, not the package's: a channel made in a test's
	// synctest bubble is of no use outside.
	asks    sync.Pool // of *ask
	replies sync.Pool // of *reply

	mu      sync.Mutex // protects what follows, and all entries and asks; never held across I/O
	entries map[dialect.Key]*entry
	free    []*entry // for reuse
	held    int      // entries that the source has granted and not got back
	waiting int      // calls of Lock that wait
	closed  bool
}

const (
	forever = time.Duration(1<<63 - 1)

	// fairness is how long the callers of one process may hand a key on to each
	// other before it goes through the database, for other processes.
	fairness = time.Second

	// yieldFor is how long a process then stays away from the key: longer than
	// a waiter elsewhere pauses between two attempts.
	yieldFor = pollMax + pollMax/4

	// The first waiter of a key asks again after a pause that doubles from
	// pollMin to pollMax, less a random part of up to a half.
	pollMin = 2 * time.Millisecond
	pollMax = 48 * time.Millisecond

	// pollAway is the pause, likewise, while the database does not answer.
	pollAway = 250 * time.Millisecond

	maxFree = 1024
)

// A source is where a table gets its keys. Its methods are called with the
// table's mu held and must not block; they answer, at once or later, by the
// table's granted, refused and freed.
type source interface {
	ask(e *entry)      // take e's key; e is idle
	askAny(a *ask)     // take the first free one of a's idle entries
	giveBack(e *entry) // release e's key; e is releasing
	away() error       // not nil: asking is in vain, and why
}

// An entry is one key of a table.
type entry struct {
	key   dialect.Key
	state state
	busy  bool   // while asking: the answer is that somebody else has it
	asks  []*ask // who wants it, first come first

	lock  *Lock   // who holds it, while held
	reply *reply  // whose Unlock waits, while releasing or freeing
	holds holding // what the key hangs on, from the grant to the end

	backend *backend      // a Session's: the queue it stands in, while queued or asking
	since   time.Duration // when this process got hold of the key and has kept or had it since; 0: it has not
	polls   int           // attempts of the waiters since the key was last seen to move
	timer   *time.Timer   // for the next attempt
	polling bool          // the timer runs
}

// holding is what a granted key lives on: one of these.
type holding struct {
	lease *lease    // a Session's connection
	tx    *txHolder // a TxLocker's transaction
}

type state uint8

const (
	idle      state = iota // nobody has it, and nothing is under way
	queued                 // will be asked for by the next statement
	asking                 // is being asked for
	held                   // by lock
	releasing              // will be given back by the next statement
	freeing                // is being given back
)

// An ask is one call that wants one of keys.
//
// Invariant: it is in entries[i].asks for each entries[i] that is not nil, and
// in no other, until it is settled.
type ask struct {
	ctx     context.Context
	keys    []Key
	entries []*entry // beside keys; nil where the key was refused
	open    int      // how many are not nil
	waits   bool     // it stays until it gets a key
	grouped bool     // it stands in the source's queue, for askAny
	settled bool
	lock    *Lock
	err     error
	done    chan struct{} // holds a token when settled

	oneKey   [1]Key
	oneEntry [1]*entry
}

// A reply is what an Unlock waits for.
type reply struct {
	done chan error // holds one
}

func newTable(src source) *table {
	t := &table{source: src, handOver: fairness, entries: make(map[dialect.Key]*entry)}
	t.asks.New = func() any { return &ask{done: make(chan struct{}, 1)} }
	t.replies.New = func() any { return &reply{done: make(chan error, 1)} }
	return t
}

// acquire takes key, or waits for it.
func (t *table) acquire(ctx context.Context, key Key, waits bool) (*Lock, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	a := t.asks.Get().(*ask)
	a.oneKey[0], a.oneEntry[0] = key, nil
	a.keys, a.entries = a.oneKey[:], a.oneEntry[:]
	lock, err := t.run(ctx, a, waits)
	*a = ask{done: a.done}
	t.asks.Put(a)
	return lock, err
}

// acquireAny takes the first free one of keys, or waits for one.
func (t *table) acquireAny(ctx context.Context, keys []Key, waits bool) (*Lock, error) {
	distinct := distinctKeys(keys)
	switch len(distinct) {
	case 0:
		return nil, errNoKeys
	case 1:
		return t.acquire(ctx, distinct[0], waits)
	}
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	a := &ask{keys: distinct, entries: make([]*entry, len(distinct)), done: make(chan struct{}, 1)}
	return t.run(ctx, a, waits)
}

// distinctKeys is keys without those that the database could not tell apart.
func distinctKeys(keys []Key) []Key {
	distinct := make([]Key, 0, len(keys))
	for _, k := range keys {
		if !slices.ContainsFunc(distinct, func(d Key) bool { return d.id == k.id }) {
			distinct = append(distinct, k)
		}
	}
	return distinct
}

// run puts a on the table and waits until it is settled or ctx ends.
func (t *table) run(ctx context.Context, a *ask, waits bool) (*Lock, error) {
	a.ctx, a.waits = ctx, waits
	t.mu.Lock()
	t.enlist(a)
	settled := a.settled
	t.mu.Unlock()
	if settled {
		<-a.done
		return a.lock, a.err
	}
	var timeout <-chan time.Time
	if t.patience > 0 && !waits {
		timer := time.NewTimer(t.patience)
		defer timer.Stop()
		timeout = timer.C
	}
	select {
	case <-a.done:
		return a.lock, a.err
	case <-ctx.Done():
		return t.giveUp(a, ctx.Err())
	case <-timeout:
		return t.giveUp(a, t.silent())
	}
}

// giveUp takes a off the table, unless its verdict has come meanwhile.
func (t *table) giveUp(a *ask, err error) (*Lock, error) {
	t.mu.Lock()
	if !a.settled {
		if away := t.source.away(); a.waits && away != nil {
			err = fmt.Errorf("%w: %w", away, err)
		}
		t.settle(a, nil, err)
	}
	t.mu.Unlock()
	<-a.done
	return a.lock, a.err
}

// enlist answers a from the table where that can be done, and else sees that
// its keys are asked for.
func (t *table) enlist(a *ask) {
	if a.waits {
		t.waiting++
	}
	if t.closed {
		t.settle(a, nil, ErrClosed)
		return
	}
	away := t.source.away()
	fresh := 0 // entries that nobody asks for yet
	var last *entry
	for i, key := range a.keys {
		e := t.entries[key.id]
		switch {
		case e != nil && e.state == releasing && away == nil && t.mayHandOver(e):
			t.settleReply(e, nil)
			t.give(e, a, key)
			return
		case e != nil && !a.waits && e.state == held:
			continue // refused
		case away != nil && !a.waits:
			t.settle(a, nil, away)
			return
		case e == nil:
			e = t.newEntry(key.id)
		case !a.waits && e.waited():
			continue // refused: others are in line
		}
		e.asks = append(e.asks, a)
		a.entries[i] = e
		a.open++
		if e.state == idle && !e.polling {
			fresh++
			last = e
		}
	}
	switch {
	case a.open == 0:
		t.settle(a, nil, ErrHeld)
	case fresh == 1:
		t.source.ask(last)
	case fresh > 1:
		t.source.askAny(a)
	}
}

// waited reports whether somebody is in line for e. Those who only try come
// and go; who waits stays.
func (e *entry) waited() bool {
	return slices.ContainsFunc(e.asks, func(a *ask) bool { return a.waits })
}

func (t *table) newEntry(key dialect.Key) *entry {
	var e *entry
	if n := len(t.free); n > 0 {
		e, t.free = t.free[n-1], t.free[:n-1]
	} else {
		e = new(entry)
	}
	e.key = key
	t.entries[key] = e
	return e
}

// tidy forgets e if nobody wants it.
func (t *table) tidy(e *entry) {
	if e.state != idle || len(e.asks) > 0 || t.entries[e.key] != e {
		return
	}
	delete(t.entries, e.key)
	if e.polling {
		e.timer.Stop()
	}
	*e = entry{asks: e.asks, timer: e.timer}
	if len(t.free) < maxFree {
		t.free = append(t.free, e)
	}
}

// settle gives a its verdict and takes it off the table.
func (t *table) settle(a *ask, lock *Lock, err error) {
	a.settled, a.lock, a.err = true, lock, err
	if a.waits {
		t.waiting--
	}
	for i, e := range a.entries {
		if e != nil {
			a.entries[i] = nil
			e.drop(a)
			t.tidy(e)
		}
	}
	a.done <- struct{}{}
}

func (e *entry) drop(a *ask) {
	if i := slices.Index(e.asks, a); i >= 0 {
		e.asks = slices.Delete(e.asks, i, i+1)
	}
}

// give makes a the holder of e's key, which the source has granted.
func (t *table) give(e *entry, a *ask, key Key) {
	e.state = held
	e.polls = 0
	e.lock = &Lock{key: key, ctx: a.ctx, home: t, entry: e, lease: e.holds.lease}
	if e.holds.tx != nil {
		e.lock.tx = e.holds.tx.tx
	}
	t.settle(a, e.lock, nil)
}

// granted is the source's answer that e's key is this process's now.
func (t *table) granted(e *entry, holds holding) {
	t.held++
	e.holds = holds
	if e.since == 0 {
		e.since = now()
	}
	if len(e.asks) == 0 { // who asked has given up
		t.release(e)
		return
	}
	first := e.asks[0]
	t.give(e, first, first.keys[slices.Index(first.entries, e)])
	t.dismiss(e, ErrHeld)
}

// refused is the source's answer that e's key was not taken: ErrHeld because
// somebody else holds it, or an error.
func (t *table) refused(e *entry, err error) {
	e.state = idle
	e.since = 0
	t.dismiss(e, err)
	for len(e.asks) > 0 && errors.Is(err, ErrClosed) { // it will never be otherwise
		t.settle(e.asks[0], nil, err)
	}
	if len(e.asks) == 0 {
		t.tidy(e)
		return
	}
	if err != ErrHeld {
		t.pollAfter(e, jitter(pollAway))
		return
	}
	e.polls++
	t.pollAfter(e, pollPause(e.polls))
}

// dismiss settles those who only try for e: with err, or, if they are refused
// and try for other keys too, when the last key has refused them.
func (t *table) dismiss(e *entry, err error) {
	for i := 0; i < len(e.asks); {
		a := e.asks[i]
		if a.waits {
			i++
			continue
		}
		e.asks = slices.Delete(e.asks, i, i+1)
		a.entries[slices.Index(a.entries, e)] = nil
		a.open--
		switch {
		case a.open == 0 || err != ErrHeld:
			t.settle(a, nil, err)
		case a.unasked():
			t.source.askAny(a)
		}
	}
}

// unasked reports whether there is a key that a wants and nobody asks for.
func (a *ask) unasked() bool {
	return slices.ContainsFunc(a.entries, func(e *entry) bool {
		return e != nil && e.state == idle && !e.polling
	})
}

// unlock implements home.
func (t *table) unlock(l *Lock) error {
	t.mu.Lock()
	e := l.entry
	if e.lock != l { // the source has lost it
		t.mu.Unlock()
		return ErrLost
	}
	e.lock = nil
	if len(e.asks) > 0 && t.mayHandOver(e) {
		first := e.asks[0]
		t.give(e, first, first.keys[slices.Index(first.entries, e)])
		t.mu.Unlock()
		return nil
	}
	var r *reply
	if !t.asyncUnlock {
		r = t.replies.Get().(*reply)
		e.reply = r
	}
	t.release(e)
	t.mu.Unlock()
	if r == nil {
		return nil
	}
	return t.await(l, r)
}

// await waits for the answer to l's release.
func (t *table) await(l *Lock, r *reply) error {
	if t.patience == 0 {
		err := <-r.done
		t.replies.Put(r)
		return err
	}
	timer := time.NewTimer(t.patience)
	defer timer.Stop()
	select {
	case err := <-r.done:
		return err
	case <-timer.C:
		return t.silent()
	}
}

// silent is the error when patience is used up.
func (t *table) silent() error {
	if t.silence != nil {
		t.silence()
	}
	return fmt.Errorf("%w: no answer within %v", ErrUnavailable, t.patience)
}

// release has the source give e's key back.
func (t *table) release(e *entry) {
	e.state = releasing
	t.source.giveBack(e)
}

// mayHandOver reports whether e's key may go to another caller of this process
// without passing through the database.
func (t *table) mayHandOver(e *entry) bool {
	if t.handOver == forever {
		return true
	}
	return t.handOver > 0 && !t.closed && now()-e.since < t.handOver && (e.holds.lease == nil || !e.holds.lease.expired())
}

func (t *table) settleReply(e *entry, err error) {
	if e.reply != nil {
		e.reply.done <- err
		e.reply = nil
	}
}

// freed is the source's word that e's key is no longer this process's: given
// back (nil) or lost.
func (t *table) freed(e *entry, err error) {
	t.held--
	t.settleReply(e, err)
	e.state, e.lock, e.holds = idle, nil, holding{}
	switch {
	case len(e.asks) == 0:
		t.tidy(e)
	case e.asks[0].waits && now()-e.since >= fairness && t.handOver != forever:
		e.since = 0
		t.pollAfter(e, yieldFor)
	default:
		t.resume(e)
	}
}

// resume asks for e, which is idle and wanted.
func (t *table) resume(e *entry) {
	first := e.asks[0]
	if len(first.keys) > 1 && !first.waits {
		t.source.askAny(first)
	} else {
		t.source.ask(e)
	}
}

// pollAfter has e's first waiter ask again after a pause.
func (t *table) pollAfter(e *entry, pause time.Duration) {
	e.polling = true
	if e.timer != nil {
		e.timer.Reset(pause)
		return
	}
	e.timer = time.AfterFunc(pause, func() {
		t.mu.Lock()
		defer t.mu.Unlock()
		t.poll(e)
	})
}

func (t *table) poll(e *entry) {
	if !e.polling || t.closed {
		return
	}
	e.polling = false
	if e.state == idle && len(e.asks) > 0 {
		t.source.ask(e)
	}
}

// close settles everybody with ErrClosed and returns the locks that were held,
// for the caller to end.
func (t *table) close() []*Lock {
	t.closed = true
	var locks []*Lock
	for _, e := range t.entries {
		for len(e.asks) > 0 {
			t.settle(e.asks[0], nil, ErrClosed)
		}
		if e.lock != nil {
			locks = append(locks, e.lock)
			e.lock = nil
		}
	}
	return locks
}
