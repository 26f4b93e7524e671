package dialect

// A Token orders the holders of one key in time: the later holder has the
// greater Epoch or, in the same Epoch, the greater Number. Only tokens of one
// System and of one history of it compare.
type Token struct {
	System int64 // the database system
	Epoch  int64 // PostgreSQL: the timeline, raised by a failover; MySQL: raised by another server
	Number int64 // PostgreSQL: a place in the write-ahead log; elsewhere a counter

	// Here is an SQL condition. It holds on the server that gave the token
	// until that server restarts, and on no other server. Here is empty for
	// SQLite, and for systems that only speak PostgreSQL's protocol.
	Here string

	Outlives bool // a lock survives a restart of its server, so its session can get another token
	MySQL    bool // the fence needs MySQL's SQL
}

// Before reports whether t is of an earlier moment than u, in the same history.
func (t Token) Before(u Token) bool {
	if t.Epoch != u.Epoch {
		return t.Epoch < u.Epoch
	}
	return t.Number < u.Number
}
