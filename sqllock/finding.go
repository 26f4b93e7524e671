package sqllock

import "time"

// A Finding is something that [Watch] has noticed: told once when it begins, and once, with Over, when it
// ends. It may hold names and hosts: it is for people, not for logs.
type Finding struct {
	Kind  FindingKind
	Over  bool      // it is so no longer; the rest is as it was last seen
	Since time.Time // when Watch first saw it, by the database's clock; of WatchFailed by this process's

	Holder *Holder // of LateHeartbeat and HeldLong
	Cycle  *Cycle  // of WaitCycle

	// Terminated: Watch has ended the server session of Holder, as [WithTerminate] told it to. It is told
	// beside the beginning and the end, at most once for each session.
	Terminated bool

	Err error // of WatchFailed
}

// A FindingKind says what a Finding is of.
type FindingKind string

// The kinds of findings.
const (
	// LateHeartbeat: the last heartbeat for a lock is too old (WithLate), and the very server process that was to
	// have the next one still holds the lock.
	LateHeartbeat FindingKind = "late heartbeat"

	// WaitCycle: server processes, or callers of Sessions, wait for each other, at two looks in a row.
	WaitCycle FindingKind = "wait cycle"

	// HeldLong: a lock is held for longer than WithLongHeld allows.
	HeldLong FindingKind = "held for long"

	// WatchFailed: Watch cannot do its work, or a part of it: the database is away, a table or a right is missing. Err
	// says which; Watch goes on.
	WatchFailed FindingKind = "watch failed"
)

// An episode is what tells a Finding from others, from its beginning to its end.
type episode struct {
	kind FindingKind
	lock lockID
	text string // of a cycle; or which part of Watch has failed
}

// A lockID is a lock while one server process holds it.
type lockID struct {
	process processID
	key     Key
	shared  bool
}

// A processID is a server process: a pid comes again.
type processID struct {
	pid   int
	start int64 // in microseconds, as the database counts
}

func (h *Holder) lockID() lockID {
	return lockID{processID{h.Process.PID, h.Process.Start.UnixMicro()}, h.Key, h.Shared}
}

func (f *Finding) episode() episode {
	e := episode{kind: f.Kind}
	switch {
	case f.Cycle != nil:
		e.text = f.Cycle.String()
	case f.Holder != nil:
		e.lock = f.Holder.lockID()
	}
	return e
}
