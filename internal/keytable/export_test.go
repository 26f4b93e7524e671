package keytable

// Len returns how many states, groups and requests are on the table.
func Len(t *Table) int {
	t.mu.Lock()
	defer t.mu.Unlock()
	return len(t.keys) + len(t.groups) + len(t.wanted) + len(t.stacks) + len(t.sets) + len(t.retries) + len(t.polls) + t.Held() + t.waiting
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
