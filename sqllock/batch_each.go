package sqllock

import (
	"slices"
	"time"

	"github.com/latchkey-go/latchkey/internal/dialect"
)

// Requests for one key of each of several groups, as the batch carries them.

// maxProbes bounds the keys beyond groups about which one statement asks. On
// PostgreSQL each takes a place in the server's lock table for a moment.
const maxProbes = 1024

// prepareEachLocked adds r to the batch. It reports whether r stays in the
// queue for the next statement instead. fits is how many keys the statement has
// room for. room, set and beyond are those of prepareGroupsLocked.
func (c *connection) prepareEachLocked(r *request, fits *int, room int, set *int, beyond error) (postpone bool) {
	s, b := c.slot.s, &c.batch
	bring, parts, states := b.mayBring(), len(b.eachParts), len(b.eachStates)
	added := c.chooseEachLocked(r) && len(b.eachStates) > states
	locks, probes := len(b.eachParts)-parts, r.each.probes()
	var denied error
	if added {
		switch missing, refused := c.missingLocked(b.eachStates[states:]); {
		case refused != nil:
			s.denyKeyLocked(missing, refused)
			added = false
		case missing != nil:
			postpone = true
		case len(r.each.groups) > s.options.maxHeld, locks > c.session.Room(), probes > maxProbes:
			denied = errManyGroups
		case len(b.eachStates)-states+probes > *fits, b.probes+probes > maxProbes:
			postpone = true
		case bring+locks <= room:
		case c.looked && bring+locks <= *set:
			*set = 0
		case c.looked && locks > *set && *set > 0:
			denied = errTableFull
		case beyond == errLookFirst:
			c.needsLook, postpone = true, true
		default:
			denied = beyond
		}
	}
	if !added || postpone || denied != nil {
		b.cutEach(parts, states)
		if denied != nil { // of r alone: there may be room for others that want its keys
			s.table.decideLocked(r, nil, denied)
		}
		return postpone
	}
	*fits -= len(b.eachStates) - states + probes
	b.probes += probes
	r.each.inBatch = true
	for _, k := range b.eachStates[states:] {
		c.startLocked(k, exclusive)
	}
	c.addEachLocked(b.eachParts[parts:])
	return false
}

// probes returns how many keys beyond the groups there are.
func (e *eachRequest) probes() (n int) {
	for g := range e.groups {
		n += len(e.groups[g].beyond)
	}
	return n
}

// chooseEachLocked adds a part for each group of r that has not reserved a key.
// It reports false if the statement cannot carry r: other statements, or other
// requests of this one, have all candidates of a group. Then r gets their
// response.
func (c *connection) chooseEachLocked(r *request) bool {
	t, b := c.slot.s.table, &c.batch
	most := max(c.session.Room()/len(r.each.groups), 1)
	for g := range r.each.groups {
		group := &r.each.groups[g]
		if group.reserved == nil && r.idleOf(g) == 0 {
			t.addCandidatesLocked(r, g)
		}
		switch {
		case r.decided, group.reserved == nil && r.idleOf(g) < group.needs():
			return false
		case group.reserved != nil:
			continue
		}
		from := len(b.eachStates)
		b.eachStates = r.appendShare(b.eachStates, g, most)
		chosen := b.eachStates[from:len(b.eachStates):len(b.eachStates)]
		b.eachParts = append(b.eachParts, eachPart{request: r, group: g, states: chosen, all: len(chosen) == group.open})
	}
	if r.each.complete() {
		t.sendEachLocked(r)
	}
	return true
}

// appendShare appends those candidates of group g that one statement should
// try, and at most so many. Where several calls try for the same keys, that is a
// fair part of them.
func (r *request) appendShare(states []*keyState, g, most int) []*keyState {
	from, group := len(states), &r.each.groups[g]
	for i, k := range r.states {
		if k == nil || r.each.candidates[i].group != g || !k.idleFor(r) {
			continue
		}
		if len(states) == from && !group.whole {
			most = min(most, (group.open+len(k.waiters)-1)/len(k.waiters))
		}
		if len(states)-from == most {
			break
		}
		states = append(states, k)
	}
	return states
}

// addEachLocked adds parts, which are those of one request, to the statement.
func (c *connection) addEachLocked(parts []eachPart) {
	t, st := c.slot.s.table, &c.batch.statement
	if len(parts) == 1 && parts[0].plain() {
		st.Try = append(st.Try, parts[0].states[0].key)
		return
	}
	freed := func(k *keyState) bool { return sessionKeyOf(k).conn == c } // this statement releases it before it takes keys
	for i, p := range parts {
		g := dialect.Group{Keys: c.batch.keysOf(p.states), Last: i == len(parts)-1}
		if group := &p.request.each.groups[p.group]; group.bounded() {
			g.Held, g.Beyond = t.takenBeyondLocked(group, nil, freed)
		}
		st.Each = append(st.Each, g)
	}
}

// countRequested counts, as held, keys beyond groups that the statement requests
// itself, in a part that the server carries out before these groups. The session
// may hold such a key by then, and would find it free.
func (b *batch) countRequested() {
	if b.probes == 0 {
		return
	}
	st, requested := &b.statement, make(map[dialect.Key]bool)
	for _, keys := range append(slices.Concat(st.Any, st.All), st.Try) {
		for _, k := range keys {
			requested[k.Exclusive()] = true
		}
	}
	for i := range st.Each {
		g := &st.Each[i]
		asked := len(g.Beyond)
		g.Beyond = slices.DeleteFunc(g.Beyond, func(k dialect.Key) bool { return requested[k] })
		g.Held += asked - len(g.Beyond)
	}
}

// plain reports whether a try for one key does for the part, if its request has
// no others. That costs the server less.
func (p *eachPart) plain() bool {
	return len(p.states) == 1 && !p.request.each.groups[p.group].bounded()
}

// completeEachLocked completes the parts of the batch, request by request.
func (c *connection) completeEachLocked(at time.Duration) {
	b, parts, groups := &c.batch, c.batch.eachParts, c.batch.statement.Each
	for len(parts) > 0 {
		n := 1
		for n < len(parts) && parts[n].request == parts[0].request {
			n++
		}
		var one [1]dialect.Group
		won := one[:]
		if own := sessionKeyOf(parts[0].states[0]); n > 1 || !parts[0].plain() {
			won, groups = groups[:n], groups[n:]
		} else if own.busy {
			own.busy, won[0].Won = false, dialect.NoneFree
		}
		b.settled += n
		c.completeRequestLocked(parts[:n], won, at)
		parts = parts[n:]
	}
}

// completeRequestLocked completes the parts of one request.
func (c *connection) completeRequestLocked(parts []eachPart, won []dialect.Group, at time.Duration) {
	parts[0].request.each.inBatch = false
	if won[0].Won >= 0 {
		c.eachGrantedLocked(parts, won, at)
	} else {
		c.eachDeniedLocked(parts, won)
	}
}

// eachGrantedLocked notes that one key of each part was granted. If the request
// has given up meanwhile, the keys are for other waiters, or go back.
func (c *connection) eachGrantedLocked(parts []eachPart, won []dialect.Group, at time.Duration) {
	t, r := c.slot.s.table, parts[0].request
	for i, p := range parts {
		k := p.states[won[i].Won]
		c.keepLocked(k)
		if r.decided {
			t.grantedLocked(k, at)
		} else {
			r.wonLocked(p.group, k)
		}
	}
	if !r.decided {
		t.grantEachLocked(r, at)
	}
	for i, p := range parts {
		for j, k := range p.states {
			switch {
			case j < won[i].Won:
				c.keyDeniedLocked(k, ErrHeld)
			case j > won[i].Won:
				c.keyUntestedLocked(k)
			}
		}
	}
}

// eachDeniedLocked notes that the request has got no key, because one of the
// parts has failed. About the keys of the others nothing is known. They come
// first, because a candidate that is denied may send the request again.
func (c *connection) eachDeniedLocked(parts []eachPart, won []dialect.Group) {
	for i, p := range parts {
		if won[i].Won == dialect.NoneFree {
			continue
		}
		if won[i].Won == dialect.OverLimit {
			c.slot.s.table.overLimitLocked(p.request, p.group, p.states, p.all)
		}
		for _, k := range p.states {
			c.keyUntestedLocked(k)
		}
	}
	for i, p := range parts {
		if won[i].Won == dialect.NoneFree {
			for _, k := range p.states {
				c.keyDeniedLocked(k, ErrHeld)
			}
		}
	}
}
