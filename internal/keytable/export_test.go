package keytable

// Len returns how many states, groups and requests are on the table.
func Len(t *Table) int {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.keys.len() + len(t.groups) + len(t.wanted) + len(t.stacks) + len(t.polls) + t.held + t.waiting
}

// Size returns how many keys the batch carries.
func (b *Batch) Size() (n int) { return len(b.Releases) + len(b.states) + b.singles() }

// singles returns how many looks are for a single key, which need no memory.
func (b *Batch) singles() (n int) {
	for i := range b.Looks {
		if b.Looks[i].group.ids == nil {
			n++
		}
	}
	return n
}
