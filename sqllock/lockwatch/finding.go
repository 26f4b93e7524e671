package lockwatch

import (
	"time"

	"github.com/latchkey-go/latchkey/sqllock"
)

// A Finding is something that [Watch] has noticed: told once when it begins, and once, with Over, when it
// ends. It may hold names and hosts: it is for people, not for logs.
type Finding struct {
	Kind  FindingKind
	Over  bool      // it is so no longer; the rest is as it was last seen
	Since time.Time // when Watch first saw it, by the database's clock; of WatchFailed by this process's

	Holder *Holder // of LateHeartbeat, RegistryNotWritten and HeldLong
	Cycle  *Cycle  // of WaitCycle

	// Terminated: Watch has ended the server session of Holder, as [WithTerminate] told it to; or it has tried to, the
	// answer was lost, and at the next look the session was gone. It is told beside the beginning and the end, at most
	// once for each session.
	Terminated bool

	Err error // of WatchFailed
}

// A FindingKind says what a Finding is of.
type FindingKind string

// The kinds of findings.
const (
	// LateHeartbeat: the last heartbeat for a lock is too old (WithLate), and the very server process that was to
	// have the next one still holds the lock and has had nothing else to do for as long either.
	LateHeartbeat FindingKind = "late heartbeat"

	// RegistryNotWritten: the last heartbeat for a lock is too old, but its server process has been busy since. So its
	// Session lives, and it is the registry that cannot be written: somebody has the table locked, the disk is full,
	// a right was taken away, the clock has stepped; the Session's log says which. (With track_activities off, the server
	// does not tell what its processes do, and every late heartbeat is this.) Nobody is ended for it.
	RegistryNotWritten FindingKind = "registry not written"

	// WaitCycle: server processes, or callers of Sessions, wait for each other, at two looks in a row between
	// which each of these callers has had a heartbeat.
	WaitCycle FindingKind = "wait cycle"

	// HeldLong: a lock is held for longer than WithLongHeld allows.
	HeldLong FindingKind = "held for long"

	// WatchFailed: Watch cannot do its work, or a part of it: the database is away, a table or a right is missing. Err
	// says which; Watch goes on. Another reason is another Finding.
	WatchFailed FindingKind = "watch failed"
)

// An findingID is what tells a Finding from others, from its beginning to its end.
type findingID struct {
	kind FindingKind
	lock lockID
	text string // of a cycle; or which part of Watch has failed
}

// A lockID is a lock while one server process holds it.
type lockID struct {
	process processID
	key     sqllock.Key
	shared  bool
}

// A processID is a server process: a pid comes again.
type processID struct {
	pid   int
	start int64 // in microseconds, as the database counts
}

func (h *Holder) lockID() lockID { return lockID{h.processID(), h.Key, h.Shared} }

func (h *Holder) processID() processID {
	return processID{h.Process.PID, h.Process.Start.UnixMicro()}
}

func (f *Finding) findingID() findingID {
	e := findingID{kind: f.Kind}
	switch {
	case f.Cycle != nil:
		e.text = f.Cycle.String()
	case f.Holder != nil:
		e.lock = f.Holder.lockID()
	}
	return e
}
