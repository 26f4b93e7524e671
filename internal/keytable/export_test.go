package keytable

// Len returns how many states, groups and requests are on the table.
func Len(t *Table) int {
	t.mu.Lock()
	defer t.mu.Unlock()
	return len(t.keys) + len(t.groups) + len(t.wanted) + len(t.stacks) + len(t.polls) + t.held + t.waiting
}
