package session

import (
	"time"

	"github.com/latchkey-go/latchkey/internal/dialect"
	"github.com/latchkey-go/latchkey/internal/keytable"
)

// How full the server's shared lock table is. A connection looks at it once a
// heartbeat, and before the Session requests more keys than its share.

const (
	// The server's lock table may be full up to this part; the rest is for other
	// clients. The log says that there is room again below the second part.
	roomPart, calmPart = 0.6, 0.5

	// fewestPeers is how many connections of lockers are assumed at least, for
	// some may have come since the last look.
	fewestPeers = 8

	// sharePart is the part of the room that all of them may take together before
	// they look again. Each takes it without seeing what others take.
	sharePart = 8

	// mostAgain bounds what a Session of a large fleet may take again of what it
	// has given back, where its part of the table is less.
	mostAgain = 64

	// lookPause is how long a full table is not looked at again, except by a
	// heartbeat.
	lookPause = 100 * time.Millisecond
)

// A room is what a Session knows of the room in the server's lock table.
//
// Invariant: between two looks the Session's locks grow by at most share and
// again, or by one set right after a look. Such a set has at most a quarter of
// the keys that were free. Growth counts from the fewest locks that the Session
// had meanwhile, because other clients may take what it releases.
type room struct {
	known bool
	at    time.Duration // of the last look
	size  int           // places of the table, and those in use: as last measured
	used  int
	held  int  // locks that the Session had, or had asked for, at the last look; less what it has given back since beyond again
	free  int  // places up to roomPart
	share int  // of free, for this Session
	again int  // of what it gives back, it may take so much again; others may have taken that
	tight bool // the log has said that there is none
}

// seen notes the result of a look. When it began, the Session had held locks.
func (r *room) seen(t dialect.LockTable, held int, at time.Duration) {
	r.known, r.at, r.held = true, at, held
	r.free = max(int(roomPart*float64(t.Size))-t.Used, 0)
	peers := max(t.Sessions, fewestPeers)
	r.share = r.free / (sharePart * peers)
	if r.share == 0 && r.free >= 2*peers {
		r.share = 1
	}
	r.again = max(t.Size/(sharePart*peers), min(r.free/64, mostAgain))
}

// more returns how many more keys may be requested now, when the Session has or
// has requested n.
func (r *room) more(n int) int {
	if r.free == 0 {
		return 0
	}
	return r.share - (n - r.held)
}

// limit notes in l how many more keys c may request: one by one, and as one
// stack. The others stay queued if a look may show more room.
func (s *Session) limit(l *keytable.Limits, c *connection) {
	n := s.taken()
	most, r := s.options.MaxHeld-n, &s.room
	r.held = min(r.held, n+r.again)
	if !r.known || r.more(n) >= most {
		l.Grants, l.Beyond = most, errMaxHeld
		return
	}
	l.Grants = r.more(n)
	if c.surveyed {
		c.surveyed = false
		if l.Stack = min(most, max(l.Grants, r.free/4)); l.Stack > 0 {
			l.Large = errFull
		}
	}
	if r.share == 0 && Now()-r.at < lookPause {
		l.Beyond = errFull
	}
}

// taken returns how many locks the Session has or has requested.
func (s *Session) taken() int {
	n := s.Table.Held()
	for _, sl := range s.slots {
		if sl.conn != nil {
			n += sl.conn.brings
		}
	}
	return n
}

// lookFirst has c look at the table, because requests wait for more room.
func (s *Session) lookFirst(c *connection) {
	c.surveyWanted = true
	signal(c.slot.wake)
}

// survey is the errand that looks. A server that does not show its table leaves
// the room unknown.
func (c *connection) survey(heartbeat bool) *errand {
	s := c.s
	looked := s.room.at != 0 && Now()-s.room.at < s.options.Heartbeat/2 // here, or on another connection
	if !c.surveyWanted && (!heartbeat || looked) {
		return nil
	}
	c.surveyWanted = false
	held, table := s.taken(), dialect.LockTable{}
	return &errand{
		send: func() (err error) {
			table, err = c.session.(dialect.Surveyor).LockTable()
			return err
		},
		complete: func(err error) (log func()) {
			c.surveyed = true
			switch r := &s.room; {
			case err == nil:
				r.seen(table, held, Now())
				r.size, r.used = table.Size, table.Used
			case isKind(err, dialect.Full):
				r.seen(dialect.LockTable{}, held, Now())
			default:
				*r = room{tight: r.tight, at: Now()}
			}
			return s.noteTight(err == nil && float64(table.Used) < calmPart*float64(table.Size))
		},
	}
}

// noteTight returns what to log when the table has become full, or has room again:
// it is calm. s.mu is held.
func (s *Session) noteTight(calm bool) (log func()) {
	r, was, size, used := &s.room, s.room.tight, s.room.size, s.room.used
	r.tight = r.known && r.share == 0 || was && !calm
	switch {
	case r.tight && !was:
		return func() {
			s.options.Log.Warn("sqllock: new keys are denied, since the server's lock table must have room for its other clients",
				"used", used, "size", size, "limit", int(roomPart*float64(size)))
		}
	case was && !r.tight:
		return func() {
			s.options.Log.Info("sqllock: the server's lock table has room again", "used", used, "size", size)
		}
	}
	return nil
}
