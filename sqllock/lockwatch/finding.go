package lockwatch

import (
	"fmt"
	"time"
)

// A Finding is something that [Watch] has noticed. Watch reports it once when it
// begins, and once more, with Over, when it ends.
//
// A Finding may hold names and hosts. Show it to operators, and keep it out of
// logs.
//
// Invariant: Holder, Cycle and Err depend on Kind, and exactly one is not nil.
type Finding struct {
	Kind FindingKind
	Over bool // it has ended; the other fields are as they were last seen

	// Since says since when it is so, by the database's clock: the last heartbeat,
	// the acquisition of the lock, or the last wait of the cycle. Where that is not
	// known, it is the first look that has shown it. That of WatchFailed is by this
	// process's clock.
	Since time.Time

	Holder *Holder // of LateHeartbeat, RegistryNotWritten and HeldLong
	Cycle  *Cycle  // of WaitCycle
	Err    error   // of WatchFailed

	// Terminated: Watch has ended the server session of Holder ([WithTerminate]).
	// Watch reports it at most once for each session, in addition to the beginning
	// and the end. If the server's reply was lost, only the end is reported.
	Terminated bool
}

// String returns f in words, with names as far as they are known: keep it out of
// logs.
func (f Finding) String() string {
	text := string(f.Kind)
	switch {
	case f.Terminated:
		text += ", session ended"
	case f.Over:
		text += ", over"
	}
	text += " (since " + f.Since.UTC().Format(time.RFC3339) + "): "
	switch {
	case f.Holder != nil:
		return text + f.Holder.label().inText() + ", held by " + f.Holder.client().String()
	case f.Cycle != nil:
		return text + f.Cycle.String()
	}
	return text + fmt.Sprint(f.Err)
}

// Row returns the lock of f as a row, as of at, and nil if f is not about a lock.
func (f Finding) Row(at time.Time) *Row {
	if f.Holder == nil {
		return nil
	}
	row := f.Holder.row(at)
	return &row
}

// A FindingKind says what a Finding is about.
type FindingKind string

// The kinds of findings.
const (
	// LateHeartbeat: the last heartbeat of a held lock is older than [WithLate]
	// allows. Its server process has been idle for as long.
	//
	// In a lease table: the session of the lock has not renewed its lease for as
	// long, or the lease has expired. It is over when the lease is renewed, or when
	// the row of the lock is gone.
	LateHeartbeat FindingKind = "late heartbeat"

	// RegistryNotWritten: the last heartbeat of a held lock is too old, but its
	// server process has worked since. The Session lives and cannot write the
	// registry. The table may be locked, the disk full, a right missing, or the
	// clock may have stepped. The log of the Session says which. Watch ends no
	// session for it.
	//
	// With track_activities off, the server does not say what its processes do.
	// Every late heartbeat is of this kind then.
	RegistryNotWritten FindingKind = "registry not written"

	// WaitCycle: server processes or callers of Sessions wait for each other. Two
	// looks in a row have shown it, and each of the callers had a heartbeat
	// between them.
	WaitCycle FindingKind = "wait cycle"

	// HeldLong: a lock is held for longer than [WithLongHeld] allows.
	HeldLong FindingKind = "held for long"

	// WatchFailed: Watch cannot do its work, or a part of it. The database may be
	// away, a right missing, or a table that [Watch] needs: Err says which. Watch
	// goes on. A different reason is a new Finding.
	WatchFailed FindingKind = "watch failed"
)

// id tells f from other findings, from its beginning to its end.
func (f *Finding) id() string {
	switch {
	case f.Cycle != nil:
		return f.Cycle.id()
	case f.Holder != nil:
		return string(f.Kind) + f.Holder.id()
	}
	return string(f.Kind)
}

// id tells the lock of h from others, while one server process or one session of a
// lease table holds it.
func (h *Holder) id() string {
	return fmt.Sprint(h.processID(), h.leaseSession(), idOf(h.Key), h.Shared)
}

// processID tells server processes apart. The server uses a PID again.
func (h *Holder) processID() string {
	return fmt.Sprint(h.Process.PID, " ", h.Process.Start.UnixMicro())
}
