package session

// Watching reports whether the socket of each connection is watched now.
func (s *Session) Watching() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, sl := range s.slots {
		if sl.conn == nil || sl.conn.watch == nil || !sl.conn.watch.armed.Load() {
			return false
		}
	}
	return true
}
