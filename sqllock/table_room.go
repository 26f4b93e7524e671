package sqllock

import (
	"errors"
	"fmt"
	"time"

	"github.com/latchkey-go/latchkey/internal/dialect"
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

var (
	// errTableFull is the error for a key beyond the Session's room. errLookFirst
	// keeps a request in the queue until the next look.
	errTableFull = fmt.Errorf("%w: the server's lock table, which all its clients share, has no room for more", ErrCapacity)
	errLookFirst = errors.New("sqllock: how full the server's lock table is must be looked at first")
)

// A room is what a Session knows of the room in the server's lock table.
//
// Invariant: between two looks the Session's locks grow by at most share and
// again, or by one set. Such a set has at most a quarter of the keys that were
// free. Growth counts from the fewest locks that the Session had meanwhile,
// because other clients may take what it releases.
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

// seenLocked notes the result of a look. When it began, the Session had held
// locks.
func (r *room) seenLocked(t dialect.LockTable, held int, at time.Duration) {
	r.known, r.at, r.held = true, at, held
	r.free = max(int(roomPart*float64(t.Size))-t.Used, 0)
	peers := max(t.Sessions, fewestPeers)
	r.share = r.free / (sharePart * peers)
	if r.share == 0 && r.free >= 2*peers {
		r.share = 1
	}
	r.again = max(t.Size/(sharePart*peers), min(r.free/64, mostAgain))
}

// moreLocked returns how many more keys may be requested now, when the Session
// has or has requested n.
func (r *room) moreLocked(n int) int {
	if r.free == 0 {
		return 0
	}
	return r.share - (n - r.held)
}

// roomLocked returns how many more keys c may request: room one by one, and set
// as one set. beyond is the error for more than that. It is errLookFirst if the
// next look may show more room.
func (c *connection) roomLocked() (room, set int, beyond error) {
	s := c.slot.s
	n := s.takenLocked()
	room, r := s.options.maxHeld-n, &s.room
	r.held = min(r.held, n+r.again)
	if !r.known || r.moreLocked(n) >= room {
		return room, room, errMaxHeld
	}
	set, room = room, r.moreLocked(n)
	if c.looked {
		set = min(set, max(room, r.free/4))
	}
	if r.share > 0 || now()-r.at >= lookPause {
		return room, set, errLookFirst
	}
	return room, room, errTableFull
}

// takenLocked returns how many locks the Session has or has requested.
func (s *Session) takenLocked() int {
	n := s.table.held
	for _, sl := range s.slots {
		if sl.conn != nil {
			n += sl.conn.batch.mayBring()
		}
	}
	return n
}

// prepareLookLocked reports whether to look now. A look is due once a
// heartbeat, or because a queued request waits for it.
func (c *connection) prepareLookLocked() bool {
	s := c.slot.s
	if !c.needsLook {
		byOther := s.room.known && now()-s.room.at < s.options.heartbeat/2 // another connection has looked
		if !c.round.tend || byOther {
			return false
		}
	}
	if _, ok := c.session.(dialect.Surveyor); !ok {
		return false
	}
	c.needsLook = false
	c.round.asked = s.takenLocked()
	return true
}

// completeLook notes the result of a look, and logs when the table becomes full
// or has room again. A server that does not show its table leaves the room
// unknown.
func (c *connection) completeLook(err error) {
	s, table := c.slot.s, c.round.table
	s.table.mu.Lock()
	if c.dead.Load() {
		s.table.mu.Unlock()
		return
	}
	answered := now()
	c.looked = true
	switch {
	case err == nil:
		s.room.seenLocked(table, c.round.asked, answered)
		s.room.size, s.room.used = table.Size, table.Used
	case isFull(err):
		s.room.seenLocked(dialect.LockTable{}, c.round.asked, answered)
	default: // this server does not tell
		s.room = room{tight: s.room.tight, at: answered}
	}
	tight := s.room.known && s.room.share == 0
	calm := err == nil && float64(table.Used) < calmPart*float64(table.Size)
	news := tight && !s.room.tight || calm && s.room.tight
	s.room.tight = tight || s.room.tight && !calm
	s.table.mu.Unlock()
	if news {
		s.tellRoom(tight, table)
	}
}

// isFull reports whether the server denied a lock because its table is full.
func isFull(err error) bool {
	var failure *dialect.Failure
	return errors.As(err, &failure) && failure.Kind == dialect.Full
}

// tellRoom logs the change. The log line holds no key.
func (s *Session) tellRoom(tight bool, table dialect.LockTable) {
	if !tight {
		s.options.log.Info("sqllock: the server's lock table has room again", "used", table.Used, "size", table.Size)
		return
	}
	s.options.log.Warn("sqllock: new keys are denied, since the server's lock table must have room for its other clients",
		"used", table.Used, "size", table.Size, "limit", int(roomPart*float64(table.Size)))
}
