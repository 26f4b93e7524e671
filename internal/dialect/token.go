package dialect

// A Token says when a lock was held: of two holders of one key the later has the
// greater token, by Epoch, then by Number. Only tokens of one history of one
// system compare.
type Token struct {
	System int64 // which database system
	Epoch  int64 // PostgreSQL: the timeline, which a failover raises; MySQL: what another server raises
	Number int64 // PostgreSQL: the place in the write-ahead log (LSN)

	// Here is an SQL condition that holds on the server that drew the token until
	// that server restarts, and on no other. It is empty where a server has no such
	// name: in SQLite, and in what only speaks PostgreSQL's protocol.
	Here string

	Outlives bool // the lock outlives its server: elsewhere its session can draw another token
	MySQL    bool // the fence is in MySQL's words
}

// Before reports whether t is of an earlier moment than u, in the same history.
func (t Token) Before(u Token) bool {
	if t.Epoch != u.Epoch {
		return t.Epoch < u.Epoch
	}
	return t.Number < u.Number
}
