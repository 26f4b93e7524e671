package keytable

import "slices"

// Len returns how many states, groups and requests are on the table.
func Len(t *Table) int {
	t.mu.Lock()
	defer t.mu.Unlock()
	return len(t.keys) + len(t.groups) + len(t.wanted) + len(t.stacks) + len(t.sets) + len(t.retries) + len(t.polls) + t.Held() + t.waiting
}

// MaxSpare is maxSpare.
const MaxSpare = maxSpare

// Spare returns how many unused States the table keeps.
func Spare(t *Table) int {
	t.mu.Lock()
	defer t.mu.Unlock()
	return len(t.spare)
}

// Size returns how many keys the batch carries.
func (b *Batch) Size() int {
	n := len(b.Releases)
	for i := range b.Looks {
		n += len(b.Looks[i].Keys)
	}
	for i := range b.Stacks {
		for _, keys := range b.Stacks[i].Levels {
			n += len(keys)
		}
	}
	return n
}

// Invariant reports whether the invariant of each group holds.
func Invariant(t *Table) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, k := range t.keys {
		for _, g := range append([]*Group{&k.own}, k.groups...) {
			_, polled := t.polls[g]
			if g.wanted && (g.looking || g.polled) || g.looking && g.polled || g.wanted != slices.Contains(t.wanted, g) || g.polled != polled {
				return false
			}
		}
	}
	return true
}
