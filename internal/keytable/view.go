package keytable

import "time"

// What a table reports about its keys, for metrics, audits and the registry.

// Figures are what a table reports about itself.
type Figures struct {
	Tally
	Held    int  // keys that the source has granted and not got back
	Waiting int  // requests that wait
	Idle    bool // no key is held, requested or waited for
	Queued  bool // a batch is to try keys for requests
}

// Figures returns the figures of this moment.
func (t *Table) Figures() Figures {
	t.mu.Lock()
	defer t.mu.Unlock()
	return Figures{t.tally, t.Held(), t.waiting, len(t.keys) == 0 && t.waiting == 0, len(t.wanted)+len(t.stacks) > 0}
}

// Count counts a call that never came to the table.
func (t *Table) Count(err error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.count(err)
}

// Held returns how many keys the source has granted and not got back.
func (t *Table) Held() int { return int(t.held.Load()) }

// Held returns how many keys o has.
func (o *Owner) Held() int { return int(o.held.Load()) }

// HeldSince returns since when a caller of this process holds a key.
func (t *Table) HeldSince(id ID) (since time.Duration, ok bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if k := t.keys[id]; k != nil && k.phase == held {
		return k.acquired, true
	}
	return 0, false
}

// AllHolds returns all holds that have not ended.
func (t *Table) AllHolds() (all Ends) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, k := range t.keys {
		k.each(func(h *Hold) { all = append(all, h) })
	}
	return all
}

// IsOrphaned reports whether a statement for a key is under way, or queued, and
// no caller waits for it.
func (t *Table) IsOrphaned(id ID) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	k := t.keys[id]
	switch {
	case k == nil:
		return false
	case k.phase == requested:
		return k.own.line.first == nil
	}
	return k.phase.inTransit() && k.reply == nil
}

// A View is a key that an owner has.
type View struct {
	ID      ID
	Mode    Mode
	Settled bool // it is held, and nothing is under way for it
	Since   time.Duration
	Label   string // of a hold
	Name    string // of a hold that has one
}

// Each calls f for each key of o, with the table locked.
func (t *Table) Each(o *Owner, f func(View)) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, k := range t.keys {
		if k.owner != o {
			continue
		}
		v := View{ID: k.id, Mode: k.mode, Settled: k.phase == held, Since: k.acquired}
		k.each(func(h *Hold) {
			v.Label = h.Label
			if v.Name == "" {
				v.Name = h.Holder.Name()
			}
		})
		f(v)
	}
}
