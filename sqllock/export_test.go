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

// StopPolls keeps the waiters of s from requesting their keys by themselves, as
// long as no statement denies one.
func StopPolls(s *Session) {
	s.table.mu.Lock()
	defer s.table.mu.Unlock()
	for k := range s.table.pausing {
		k.timer.Stop()
	}
}

// Watching reports whether the socket of each connection of s is watched now.
func Watching(s *Session) bool {
	s.table.mu.Lock()
	defer s.table.mu.Unlock()
	for _, slot := range s.slots {
		if c := slot.conn; c == nil || !c.watch.armed.Load() {
			return false
		}
	}
	return true
}
