package sqllock

import (
	"cmp"
	"slices"
	"time"

	"github.com/latchkey-go/latchkey/internal/dialect"
)

// A flight is the statement under way on a lease, and whom its answer is for.
type flight struct {
	batch    dialect.Batch
	releases []*entry // beside batch.Release
	tries    []*entry // beside batch.Try
	groups   []group  // beside batch.Any
	sets     []group  // beside batch.All
	underWay bool
	sent     time.Duration
	sentBoot time.Duration // the same by the clock that goes on while the system is suspended
	oldest   time.Duration // when the first caller in it came
	wakes    []chan struct{}
}

// A group is keys of which one is wanted, or of a set all, by ask.
type group struct {
	entries []*entry
	ask     *ask
}

// wantedLocked is how many keys the flight may bring.
func (f *flight) wantedLocked() int {
	n := len(f.tries) + len(f.groups)
	for _, set := range f.sets {
		n += len(set.entries)
	}
	return n
}

// take loads the flight with what is queued, up to limit keys and all groups, and
// reports whether there is anything to send.
func (l *lease) take(limit int, due bool) bool {
	b, t := l.backend, l.backend.s.table
	t.mu.Lock()
	defer t.mu.Unlock()
	if l.dead.Load() {
		return false
	}
	f := &l.flight
	f.clear()
	full := l.session.Room() < limit
	limit = min(limit, l.session.Room())
	releases := b.releases[:min(limit, len(b.releases))]
	for _, e := range releases {
		if e.state == releasing && e.holds.lease == l {
			e.state = freeing
			f.releases = append(f.releases, e)
			f.batch.Release = append(f.batch.Release, e.asked())
		}
	}
	limit -= len(releases)
	b.releases = slices.Delete(b.releases, 0, len(releases))
	f.oldest, b.oldest = b.oldest, 0
	if len(b.releases)+max(len(b.tries)-limit, 0) > 0 {
		b.oldest = f.oldest
		if full { // the next statement may leave some behind again: their patience begins anew with each that is answered
			b.oldest = now()
		}
	}
	room, set, beyond := l.roomLocked()
	l.takeTriesLocked(limit, room, beyond)
	l.takeGroupsLocked(room, set, beyond)
	l.looked = false
	switch {
	case b.oldest != 0:
	case len(l.wanted) > 0, l.looks: // who needs a claim, or room in the lock table, is still queued
		b.oldest = cmp.Or(f.oldest, now())
	case len(b.groups) > 0: // who did not fit in, too
		b.oldest = now()
	}
	if !due && len(f.releases)+f.wantedLocked() == 0 {
		if b.oldest != 0 { // of what was taken nothing is left to send, and there is more
			b.signal()
		}
		return false
	}
	l.sendingLocked(f.oldest)
	return true
}

// sendingLocked notes that a statement is about to be sent, and that callers have waited since
// oldest for what it brings, or for what comes after it; 0: since now.
func (l *lease) sendingLocked(oldest time.Duration) {
	f := &l.flight
	l.boot.refresh(l.backend.s.options.bootTime)
	f.underWay, f.sent, f.oldest = true, now(), oldest
	f.sentBoot = f.sent + l.boot.offset
	if oldest == 0 {
		f.oldest = f.sent
	}
	l.armLocked()
}

func (f *flight) clear() {
	f.batch.Reset()
	clear(f.releases)
	clear(f.tries)
	clear(f.groups)
	clear(f.sets)
	f.releases, f.tries, f.groups, f.sets = f.releases[:0], f.tries[:0], f.groups[:0], f.sets[:0]
}

func (l *lease) takeTriesLocked(limit, room int, beyond error) {
	b, t := l.backend, l.backend.s.table
	limit = min(limit, len(b.tries))
	tries, rest := b.tries[:limit], b.tries[limit:]
	b.tries, b.spare = append(b.spare[:0], rest...), b.tries // what follows may queue again
	for _, e := range tries {
		shared := e.wantsShared()
		switch {
		case e.state != queued || e.backend != b:
		case len(e.asks) == 0: // all have given up
			e.state = idle
			t.tidyLocked(e)
		case shared && !b.s.options.dialect.Traits().Readers:
			t.refusedReadersLocked(e, errReaders)
		case !l.hasLocked(e):
			if err := l.wantLocked(e); err != nil {
				t.refusedLocked(e, err)
			} else {
				b.tries = append(b.tries, e)
			}
		case len(l.flight.tries) < room:
			l.tryLocked(e, shared)
		case beyond == errLookFirst:
			l.looks = true
			b.tries = append(b.tries, e)
		default:
			t.refusedLocked(e, beyond)
		}
	}
}

// tryLocked adds e to the flight.
func (l *lease) tryLocked(e *entry, shared bool) {
	l.askingLocked(e, shared)
	l.flight.tries = append(l.flight.tries, e)
	l.flight.batch.Try = append(l.flight.batch.Try, e.asked())
}

func (l *lease) askingLocked(e *entry, shared bool) {
	e.backend = l.backend
	e.stake = l.claims[e.claim]
	e.stake.usedLocked(1)
	l.backend.s.table.askingLocked(e, shared)
}

// refusedGroupLocked has a refused those of its keys that it asks for.
func (t *table) refusedGroupLocked(a *ask, entries []*entry, err error) {
	for _, e := range entries {
		if slices.Contains(a.entries, e) { // the refusal of one may settle a
			t.refusedLocked(e, err)
		}
	}
}

// takeGroupsLocked adds those who want one of several keys, or all. Keys that two want go to
// one of them: the database would grant a key to the same session twice.
func (l *lease) takeGroupsLocked(room, set int, beyond error) {
	b, t := l.backend, l.backend.s.table
	groups := b.groups
	b.groups = nil
	fits := l.session.Room() - len(l.flight.releases) - len(l.flight.tries)
	for _, a := range groups {
		a.grouped = false
		if a.settled {
			continue
		}
		entries := a.share()
		if l.beyondClaimsLocked(entries) {
			t.refusedGroupLocked(a, entries, errMaxClaims)
			continue
		}
		missing, refused := l.missingLocked(entries)
		switch {
		case len(entries) == 0: // others ask for all of them: a gets their answer
		case refused != nil:
			t.refusedLocked(missing, refused)
		case missing != nil:
			a.grouped = true
			b.groups = append(b.groups, a)
			continue
		case len(entries) > l.session.Room(), a.least() > b.s.options.maxHeld:
			t.refusedGroupLocked(a, entries, errManyKeys)
		case len(entries) > fits: // next time
			a.grouped = true
			b.groups = append(b.groups, a)
			continue
		case l.flight.wantedLocked()+a.least() <= room:
			fits -= l.askGroupLocked(a, entries)
		case a.all && l.looked && l.flight.wantedLocked()+a.least() <= set:
			set = 0
			fits -= l.askGroupLocked(a, entries)
		case a.all && l.looked && a.least() > set && set > 0:
			t.refusedGroupLocked(a, entries, errTableFull)
		case beyond == errLookFirst:
			l.looks, a.grouped = true, true
			b.groups = append(b.groups, a)
			continue
		default:
			t.refusedGroupLocked(a, entries, beyond)
		}
		for _, e := range a.entries { // what it could not take along
			if e != nil && e.state == idle && !e.pending() {
				t.resumeLocked(e)
			}
		}
	}
}

// beyondClaimsLocked reports whether entries need more claims than l may have beside those
// that are in use.
func (l *lease) beyondClaimsLocked(entries []*entry) bool {
	if len(entries) <= maxClaims-len(l.claims) {
		return false
	}
	needed := make(map[claim]bool)
	for _, e := range entries {
		if e.claim != (claim{}) {
			needed[e.claim] = true
		}
	}
	for c, s := range l.claims {
		if s.held > 0 {
			needed[c] = true
		}
	}
	return len(needed) > maxClaims
}

// askGroupLocked adds entries, of a, to the flight, and returns how many they are.
func (l *lease) askGroupLocked(a *ask, entries []*entry) int {
	if len(entries) == 1 {
		l.tryLocked(entries[0], false)
	} else {
		l.groupLocked(a, entries)
	}
	return len(entries)
}

// groupLocked adds entries, of a, to the flight.
func (l *lease) groupLocked(a *ask, entries []*entry) {
	keys := make([]dialect.Key, len(entries))
	for i, e := range entries {
		l.askingLocked(e, false)
		keys[i] = e.key
	}
	f, g := &l.flight, group{entries, a}
	if a.all {
		f.sets, f.batch.All = append(f.sets, g), append(f.batch.All, keys)
	} else {
		f.groups, f.batch.Any = append(f.groups, g), append(f.batch.Any, keys)
	}
}

// least is how many keys a brings if it is granted.
func (a *ask) least() int {
	if a.all {
		return len(a.keys)
	}
	return 1
}

// missingLocked is one of entries for which l has not the claim, and why it is not
// to be had just now, if that is known.
func (l *lease) missingLocked(entries []*entry) (missing *entry, refused error) {
	for _, e := range entries {
		if !l.hasLocked(e) {
			missing = e
			if refused = l.wantLocked(e); refused != nil {
				break
			}
		}
	}
	return missing, refused
}

// share is those of a's keys to ask for in one statement: all that nobody asks
// for, or a fair part where several try for the same ones; for one that wants all,
// all or none.
func (a *ask) share() []*entry {
	var entries []*entry
	if a.all {
		if a.ready() {
			entries = slices.Clone(a.entries)
		}
		return entries
	}
	quota := len(a.keys)
	for _, e := range a.entries {
		if e == nil || e.state != idle || e.polling {
			continue
		}
		if e.key.Space != dialect.Bigint { // a batch's groups are of the bigint space
			if len(entries) == 0 {
				entries = append(entries, e)
			}
			break
		}
		if len(entries) == 0 && !a.waits {
			quota = (len(a.keys) + len(e.asks) - 1) / len(e.asks)
		}
		if len(entries) == quota {
			break
		}
		entries = append(entries, e)
	}
	return entries
}
