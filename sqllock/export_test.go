package sqllock

// InLine returns how many calls of Lock wait in l.
func InLine(l Locker) int {
	var t *keyTable
	switch l := l.(type) {
	case *Session:
		t = l.table
	case *ConnLocker:
		t = l.table
	case *TxLocker:
		t = l.table
	case *Memory:
		t = l.table
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.waiting
}
