package dialect

import "time"

// A LeasedLock is a row of latchkey_locks with its session, as it stands in a
// lease table. It is held until Expires.
type LeasedLock struct {
	Space             Space
	ID                int64
	Session           int64  // of latchkey_sessions
	Holder            string // of the session, for people
	Acquired, Expires time.Time
}
