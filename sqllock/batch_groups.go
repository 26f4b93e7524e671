package sqllock

import (
	"slices"

	"github.com/latchkey-go/latchkey/internal/dialect"
)

// A group is what request wants together: one of keys or, in a set, all of them.
type group struct {
	keys    []*keyState
	request *request
}

// prepareGroupsLocked adds the requests for one of several keys, or for all. A key
// that two of them want goes to one: the database would grant it to the same
// session twice.
//
// room is how many more keys may be requested, set how many those of one set may
// be, and beyond the error for the others.
func (c *connection) prepareGroupsLocked(room, set int, beyond error) {
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
		for _, k := range r.states { // what it could not take along
			if k != nil && k.phase == idle && !k.pending() {
				t.resumeLocked(k)
			}
		}
	}
}

// postponeLocked leaves r in the queue for the next statement.
func (sl *slot) postponeLocked(r *request) {
	r.enqueued = true
	sl.groups = append(sl.groups, r)
}

// denyGroupLocked denies to r those of its keys that states are.
func (s *Session) denyGroupLocked(r *request, states []*keyState, err error) {
	for _, k := range states {
		if slices.Contains(r.states, k) { // the denial of one may decide r
			s.denyKeyLocked(k, err)
		}
	}
}

// addGroupLocked adds the keys of states, of r, to the batch. It returns how many
// they are.
func (c *connection) addGroupLocked(r *request, states []*keyState) int {
	if len(states) == 1 {
		c.addTryLocked(states[0], exclusive)
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

// minKeys is how many keys r brings if it is granted.
func (r *request) minKeys() int {
	if r.all {
		return len(r.keys)
	}
	return 1
}

// fairShare is those of r's keys to request in one statement. It is all keys that no
// other statement requests. Where several calls try for the same keys, it is a fair
// part of them. For a request that wants all keys, it is all or none.
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
		if k.key.Space != dialect.Bigint { // the groups of a batch are of the bigint space
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
