package sqllock

import (
	"cmp"
	"slices"
	"time"

	"github.com/latchkey-go/latchkey/internal/dialect"
)

// A batch is the statement under way on a lease, and whom its answer is for.
type batch struct {
	statement dialect.Batch
	releases  []*keyState // beside batch.Release
	tries     []*keyState // beside batch.Try
	groups    []group     // beside batch.Any
	sets      []group     // beside batch.All
	underWay  bool
	sent      time.Duration
	sentBoot  time.Duration // the same by the clock that goes on while the system is suspended
	oldest    time.Duration // when the first caller in it came
	wakes     []chan struct{}
}

// A group is keys of which one is wanted, or of a set all, by ask.
type group struct {
	keys    []*keyState
	request *request
}

// wantedLocked is how many keys the batch may bring.
func (b *batch) wantedLocked() int {
	n := len(b.tries) + len(b.groups)
	for _, set := range b.sets {
		n += len(set.keys)
	}
	return n
}

// prepare loads the batch with what is queued, up to limit keys and all groups, and
// reports whether there is anything to send.
func (c *connection) prepare(limit int, due bool) bool {
	sl, t := c.slot, c.slot.s.table
	t.mu.Lock()
	defer t.mu.Unlock()
	if c.dead.Load() {
		return false
	}
	b := &c.batch
	b.clear()
	full := c.session.Room() < limit
	limit = min(limit, c.session.Room())
	releases := sl.releases[:min(limit, len(sl.releases))]
	for _, k := range releases {
		if k.phase == releasing && sessionKeyOf(k).conn == c {
			k.phase = freeing
			b.releases = append(b.releases, k)
			b.statement.Release = append(b.statement.Release, k.dbKey())
		}
	}
	limit -= len(releases)
	sl.releases = slices.Delete(sl.releases, 0, len(releases))
	b.oldest, sl.oldest = sl.oldest, 0
	if len(sl.releases)+max(len(sl.tries)-limit, 0) > 0 {
		sl.oldest = b.oldest
		if full { // the next statement may leave some behind again: their the timeout begins anew with each that is answered
			sl.oldest = now()
		}
	}
	room, set, beyond := c.roomLocked()
	c.takeTriesLocked(limit, room, beyond)
	c.takeGroupsLocked(room, set, beyond)
	c.looked = false
	switch {
	case sl.oldest != 0:
	case len(c.wantedSecrets) > 0, c.needsLook: // who needs a claim, or room in the lock table, is still queued
		sl.oldest = cmp.Or(b.oldest, now())
	case len(sl.groups) > 0: // who did not fit in, too
		sl.oldest = now()
	}
	if !due && len(b.releases)+b.wantedLocked() == 0 {
		if sl.oldest != 0 { // of what was taken nothing is left to send, and there is more
			sl.signal()
		}
		return false
	}
	c.sendingLocked(b.oldest)
	return true
}

// sendingLocked notes that a statement is about to be sent, and that callers have waited since
// oldest for what it brings, or for what comes after it; 0: since now.
func (c *connection) sendingLocked(oldest time.Duration) {
	b := &c.batch
	c.boot.refresh(c.slot.s.options.bootTime)
	b.underWay, b.sent, b.oldest = true, now(), oldest
	b.sentBoot = b.sent + c.boot.offset
	if oldest == 0 {
		b.oldest = b.sent
	}
	c.armLocked()
}

func (b *batch) clear() {
	b.statement.Reset()
	clear(b.releases)
	clear(b.tries)
	clear(b.groups)
	clear(b.sets)
	b.releases, b.tries, b.groups, b.sets = b.releases[:0], b.tries[:0], b.groups[:0], b.sets[:0]
}

func (c *connection) takeTriesLocked(limit, room int, beyond error) {
	sl, t := c.slot, c.slot.s.table
	limit = min(limit, len(sl.tries))
	tries, rest := sl.tries[:limit], sl.tries[limit:]
	sl.tries, sl.spareTries = append(sl.spareTries[:0], rest...), sl.tries // what follows may queue again
	for _, k := range tries {
		m := k.wantedMode()
		switch {
		case k.phase != queued || sessionKeyOf(k).slot != sl:
		case len(k.waiters) == 0: // all have given up
			k.phase = idle
			t.forgetLocked(k)
		case m == shared && !sl.s.options.dialect.Traits().Readers:
			t.deniedReadersLocked(k, errReaders)
		case !c.hasSecretLocked(k):
			if err := c.wantSecretLocked(k); err != nil {
				sl.s.denyKeyLocked(k, err)
			} else {
				sl.tries = append(sl.tries, k)
			}
		case len(c.batch.tries) < room:
			c.tryLocked(k, m)
		case beyond == errLookFirst:
			c.needsLook = true
			sl.tries = append(sl.tries, k)
		default:
			sl.s.denyKeyLocked(k, beyond)
		}
	}
}

// tryLocked adds e to the batch.
func (c *connection) tryLocked(k *keyState, m lockMode) {
	c.requestedLocked(k, m)
	c.batch.tries = append(c.batch.tries, k)
	c.batch.statement.Try = append(c.batch.statement.Try, k.dbKey())
}

func (c *connection) requestedLocked(k *keyState, m lockMode) {
	own := sessionKeyOf(k)
	own.slot = c.slot
	own.use = c.secrets[own.check]
	own.use.countLocked(1)
	c.slot.s.table.requestedLocked(k, m)
}

// deniedGroupLocked has a refused those of its keys that it asks for.
func (s *Session) denyGroupLocked(r *request, states []*keyState, err error) {
	for _, k := range states {
		if slices.Contains(r.states, k) { // the refusal of one may settle a
			s.denyKeyLocked(k, err)
		}
	}
}

// takeGroupsLocked adds those who want one of several keys, or all. Keys that two want go to
// one of them: the database would grant a key to the same session twice.
func (c *connection) takeGroupsLocked(room, set int, beyond error) {
	sl, t := c.slot, c.slot.s.table
	groups := sl.groups
	sl.groups = nil
	fits := c.session.Room() - len(c.batch.releases) - len(c.batch.tries)
	for _, r := range groups {
		r.enqueued = false
		if r.decided {
			continue
		}
		states := r.fairShare()
		if c.beyondSecretsLocked(states) {
			sl.s.denyGroupLocked(r, states, errMaxSecrets)
			continue
		}
		missing, refused := c.missingLocked(states)
		switch {
		case len(states) == 0: // others ask for all of them: a gets their answer
		case refused != nil:
			sl.s.denyKeyLocked(missing, refused)
		case missing != nil:
			r.enqueued = true
			sl.groups = append(sl.groups, r)
			continue
		case len(states) > c.session.Room(), r.minKeys() > sl.s.options.maxHeld:
			sl.s.denyGroupLocked(r, states, errManyKeys)
		case len(states) > fits: // next time
			r.enqueued = true
			sl.groups = append(sl.groups, r)
			continue
		case c.batch.wantedLocked()+r.minKeys() <= room:
			fits -= c.addGroupLocked(r, states)
		case r.all && c.looked && c.batch.wantedLocked()+r.minKeys() <= set:
			set = 0
			fits -= c.addGroupLocked(r, states)
		case r.all && c.looked && r.minKeys() > set && set > 0:
			sl.s.denyGroupLocked(r, states, errTableFull)
		case beyond == errLookFirst:
			c.needsLook, r.enqueued = true, true
			sl.groups = append(sl.groups, r)
			continue
		default:
			sl.s.denyGroupLocked(r, states, beyond)
		}
		for _, k := range r.states { // what it could not take along
			if k != nil && k.phase == idle && !k.pending() {
				t.resumeLocked(k)
			}
		}
	}
}

// beyondSecretsLocked reports whether key states need more claims than l may have beside those
// that are in use.
func (c *connection) beyondSecretsLocked(states []*keyState) bool {
	if len(states) <= maxSecrets-len(c.secrets) {
		return false
	}
	needed := make(map[secretCheck]bool)
	for _, k := range states {
		if check := sessionKeyOf(k).check; check != (secretCheck{}) {
			needed[check] = true
		}
	}
	for check, use := range c.secrets {
		if use.keys > 0 {
			needed[check] = true
		}
	}
	return len(needed) > maxSecrets
}

// addGroupLocked adds key states, of a, to the batch, and returns how many they are.
func (c *connection) addGroupLocked(r *request, states []*keyState) int {
	if len(states) == 1 {
		c.tryLocked(states[0], exclusive)
	} else {
		c.groupLocked(r, states)
	}
	return len(states)
}

// groupLocked adds key states, of a, to the batch.
func (c *connection) groupLocked(r *request, states []*keyState) {
	keys := make([]dialect.Key, len(states))
	for i, k := range states {
		c.requestedLocked(k, exclusive)
		keys[i] = k.key
	}
	b, g := &c.batch, group{states, r}
	if r.all {
		b.sets, b.statement.All = append(b.sets, g), append(b.statement.All, keys)
	} else {
		b.groups, b.statement.Any = append(b.groups, g), append(b.statement.Any, keys)
	}
}

// minKeys is how many keys a brings if it is granted.
func (r *request) minKeys() int {
	if r.all {
		return len(r.keys)
	}
	return 1
}

// missingLocked is one of key states for which l has not the claim, and why it is not
// to be had just now, if that is known.
func (c *connection) missingLocked(states []*keyState) (missing *keyState, refused error) {
	for _, k := range states {
		if !c.hasSecretLocked(k) {
			missing = k
			if refused = c.wantSecretLocked(k); refused != nil {
				break
			}
		}
	}
	return missing, refused
}

// fairShare is those of a's keys to ask for in one statement: all that nobody asks
// for, or a fair part where several try for the same ones; for one that wants all,
// all or none.
func (r *request) fairShare() []*keyState {
	var states []*keyState
	if r.all {
		if r.ready() {
			states = slices.Clone(r.states)
		}
		return states
	}
	quota := len(r.keys)
	for _, k := range r.states {
		if k == nil || k.phase != idle || k.polling {
			continue
		}
		if k.key.Space != dialect.Bigint { // a batch's groups are of the bigint space
			if len(states) == 0 {
				states = append(states, k)
			}
			break
		}
		if len(states) == 0 && !r.waits {
			quota = (len(r.keys) + len(k.waiters) - 1) / len(k.waiters)
		}
		if len(states) == quota {
			break
		}
		states = append(states, k)
	}
	return states
}
