package sqllock

import (
	"cmp"
	"slices"

	"github.com/latchkey-go/latchkey/internal/dialect"
)

// Which requests and releases the next batch carries. All this happens under
// one hold of table.mu. What the batch cannot carry stays in the queue, or is
// denied with the reason.

// prepareBatchLocked fills the batch with what is queued, up to limit keys and
// all groups. It reports whether to send the batch: there is something in it,
// or a heartbeat is due.
func (c *connection) prepareBatchLocked(limit int, beat bool) bool {
	sl, b := c.slot, &c.batch
	b.clear()
	sl.passReleasedLocked()
	full := c.session.Room() < limit
	limit = min(limit, c.session.Room())
	limit -= c.prepareReleasesLocked(limit)
	b.oldest, sl.oldest = sl.oldest, 0
	left := len(sl.releases)+max(len(sl.singles)-limit, 0) > 0
	b.crowded = left && full
	room, set, beyond := c.roomLocked()
	c.prepareSinglesLocked(limit, room, beyond)
	c.prepareGroupsLocked(room, set, beyond)
	b.countRequested()
	checked := c.demand.checked
	c.looked, c.demand.full, c.demand.checked = false, false, false
	switch {
	case checked && c.demand.keys > 0 && (full || !left): // one check at a time: the timeout of the others begins anew with each answer
		sl.oldest = now()
	case left, c.demand.keys > 0, c.needsLook: // keys that need a turn, a check, or room in the lock table, are still queued
		sl.waitSinceLocked(cmp.Or(b.oldest, now()))
	case len(sl.groups) > 0: // they did not fit in
		b.crowded = true
		sl.waitSinceLocked(cmp.Or(b.oldest, now()))
	}
	sl.storeLengthLocked()
	if !beat && len(b.releases)+b.mayBring() == 0 {
		if sl.oldest != 0 { // nothing is left to send of what was taken, and there is more
			sl.signal()
		}
		return false
	}
	c.sendingLocked(b.oldest)
	return true
}

// passReleasedLocked reserves keys whose release is queued for the requests that
// are queued too. Neither costs the database anything then.
func (sl *slot) passReleasedLocked() {
	if len(sl.releases) == 0 {
		return
	}
	for _, r := range sl.groups {
		if r.each == nil || r.decided || r.each.inBatch {
			continue
		}
		for g := range r.each.groups {
			sl.s.table.passLocked(r, g)
		}
	}
}

// prepareReleasesLocked adds up to limit releases. It returns how many it has
// taken out of the queue. A release that is stale, because the key has changed
// hands since, is dropped.
func (c *connection) prepareReleasesLocked(limit int) int {
	sl, b := c.slot, &c.batch
	releases := sl.releases[:min(limit, len(sl.releases))]
	for _, k := range releases {
		if k.phase == releasing && sessionKeyOf(k).conn == c {
			k.phase = freeing
			b.releases = append(b.releases, k)
			b.statement.Release = append(b.statement.Release, k.dbKey())
		}
	}
	sl.releases = slices.Delete(sl.releases, 0, len(releases))
	return len(releases)
}

// prepareSinglesLocked adds up to limit of the keys that are queued one by one.
// room is how many more keys may be requested, and beyond the error for the
// others.
//
// A key whose secret has not been checked goes back into the queue. The check
// is then in a statement before the next batch.
func (c *connection) prepareSinglesLocked(limit, room int, beyond error) {
	sl, t := c.slot, c.slot.s.table
	limit = min(limit, len(sl.singles))
	singles, rest := sl.singles[:limit], sl.singles[limit:]
	sl.singles, sl.spareSingles = append(sl.spareSingles[:0], rest...), sl.singles // what follows may queue again
	for _, k := range singles {
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
				sl.singles = append(sl.singles, k)
			}
		case len(c.batch.singles) < room:
			c.addSingleLocked(k, m)
		case beyond == errLookFirst:
			c.needsLook = true
			sl.singles = append(sl.singles, k)
		default:
			sl.s.denyKeyLocked(k, beyond)
		}
	}
}

// addSingleLocked adds k to the batch.
func (c *connection) addSingleLocked(k *keyState, m lockMode) {
	c.startLocked(k, m)
	c.batch.singles = append(c.batch.singles, k)
	c.batch.statement.Try = append(c.batch.statement.Try, k.dbKey())
}

// prepareGroupsLocked adds the requests for one of several keys, or for all. A
// key that two of them want goes to one, because the database would grant it to
// the same session twice.
//
// room is how many more keys may be requested, and set how many those of one
// set may be. beyond is the error for the others.
func (c *connection) prepareGroupsLocked(room, set int, beyond error) {
	sl := c.slot
	groups := sl.groups
	sl.groups = nil
	fits := c.session.Room() - len(c.batch.releases) - len(c.batch.singles)
	for _, r := range groups {
		r.enqueued = false
		if r.decided {
			continue
		}
		if r.each != nil {
			if c.prepareEachLocked(r, &fits, room, &set, beyond) {
				sl.postponeLocked(r)
				continue
			}
			c.resumeOthersLocked(r)
			continue
		}
		states := r.fairShare()
		missing, refused := c.missingLocked(states)
		switch {
		case len(states) == 0: // other statements request all of them: r gets their answer
		case refused != nil:
			sl.s.denyKeyLocked(missing, refused)
		case missing != nil:
			sl.postponeLocked(r)
			continue
		case len(states) > c.session.Room(), r.minKeys() > sl.s.options.maxHeld:
			sl.s.denyGroupLocked(r, states, errManyKeys)
		case len(states) > fits:
			sl.postponeLocked(r)
			continue
		case c.batch.mayBring()+r.minKeys() <= room:
			fits -= c.addGroupLocked(r, states)
		case r.all && c.looked && c.batch.mayBring()+r.minKeys() <= set:
			set = 0
			fits -= c.addGroupLocked(r, states)
		case r.all && c.looked && r.minKeys() > set && set > 0:
			sl.s.denyGroupLocked(r, states, errTableFull)
		case beyond == errLookFirst:
			c.needsLook = true
			sl.postponeLocked(r)
			continue
		default:
			sl.s.denyGroupLocked(r, states, beyond)
		}
		c.resumeOthersLocked(r)
	}
}

// resumeOthersLocked requests the keys that the batch could not take along for
// r.
func (c *connection) resumeOthersLocked(r *request) {
	for _, k := range r.states {
		if k != nil && k.phase == idle && !k.pending() {
			c.slot.s.table.resumeLocked(k)
		}
	}
}

// postponeLocked leaves r in the queue for the next statement.
func (sl *slot) postponeLocked(r *request) {
	r.enqueued = true
	sl.groups = append(sl.groups, r)
}

// denyGroupLocked denies states to r. The denial of one may decide r, which
// then leaves the others.
func (s *Session) denyGroupLocked(r *request, states []*keyState, err error) {
	for _, k := range states {
		if slices.Contains(r.states, k) { // the denial of one may decide r
			s.denyKeyLocked(k, err)
		}
	}
}

// addGroupLocked adds the keys of states, of r, to the batch. It returns how
// many they are.
func (c *connection) addGroupLocked(r *request, states []*keyState) int {
	if len(states) == 1 {
		c.addSingleLocked(states[0], exclusive)
		return 1
	}
	keys := make([]dialect.Key, len(states))
	for i, k := range states {
		c.startLocked(k, exclusive)
		keys[i] = k.key
	}
	b, g := &c.batch, group{states, r}
	if r.all {
		b.sets, b.statement.All = append(b.sets, g), append(b.statement.All, keys)
	} else {
		b.groups, b.statement.Any = append(b.groups, g), append(b.statement.Any, keys)
	}
	return len(states)
}
