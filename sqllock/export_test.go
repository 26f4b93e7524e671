package sqllock

// InLine returns how many calls of Lock wait in l.
func InLine(l Locker) int {
	var h home
	switch l := l.(type) {
	case *Session:
		h = l.home
	case *ConnLocker:
		h = l.home
	case *TxLocker:
		h = l.home
	case *Memory:
		h = l.home
	}
	return h.table.Figures().Waiting
}

// Watching reports whether the socket of each connection of s is watched now.
func Watching(s *Session) bool { return s.session.Watching() }
