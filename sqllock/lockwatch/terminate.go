package lockwatch

import (
	"cmp"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"maps"
	"time"

	"github.com/latchkey-go/latchkey/internal/bound"
	"github.com/latchkey-go/latchkey/internal/dialect/dbconn"
	"github.com/latchkey-go/latchkey/internal/dialect/errcode"
	"github.com/latchkey-go/latchkey/internal/dialect/postgres"
	"github.com/latchkey-go/latchkey/sqllock"
)

// Terminate ends the server session of p, with all its locks, and reports whether it
// did. It is for an operator who has read a [Snapshot] and decided. It goes by p.PID
// and p.Start, since the server uses a PID again.
//
// Terminate returns false without an error in these cases:
//   - The session has ended meanwhile.
//   - It neither holds an advisory lock of db's database nor takes part in a wait.
//   - p.Start is zero: this role may not see the start.
//
// The role of db must be the role of the session, a member of it, or a member of
// pg_signal_backend. Only a superuser can end the session of a superuser. The errors
// are those of [Inspect]. Terminate panics if db is nil.
func Terminate(ctx context.Context, db *sql.DB, p Process) (bool, error) {
	if db == nil {
		panic("lockwatch: Terminate needs a *sql.DB that is not nil")
	}
	if p.PID <= 0 || p.Start.IsZero() {
		return false, nil
	}
	ended, err := dbconn.Within(ctx, forever, func(ctx context.Context) (bool, error) {
		return postgres.EndProcess(ctx, db, p.PID, p.Start, time.Time{})
	})
	return ended, withAdvice(publicError(err))
}

// withAdvice says what a role lacks that may not end a session.
func withAdvice(err error) error {
	if errcode.SQLState(err) != errcode.Forbidden {
		return err
	}
	return fmt.Errorf("lockwatch: this role may not end that session: grant it pg_signal_backend, or that session's own role (a superuser's only a superuser ends): %w", err)
}

// lastSign is the last sign of life of the session of a registered lock.
func (h *Holder) lastSign() string {
	return fmt.Sprint(h.id(), " ", h.Registration.Heartbeat.UnixMicro(), " ", h.Process.StateSince.UnixMicro())
}

// noteSilence updates since when no lock of s has had another sign of life.
func (w *watchdog) noteSilence(s *Snapshot) {
	silent := make(map[string]time.Time, len(s.Holders))
	for i := range s.Holders {
		if h := &s.Holders[i]; h.Registration != nil {
			silent[h.lastSign()] = cmp.Or(w.silent[h.lastSign()], time.Now())
		}
	}
	w.silent = silent
}

// terminate ends the sessions of late locks for which WithTerminate's function
// returns true. A look tries each session once, and no session again that was
// ended. requested is the time before s was requested.
func (w *watchdog) terminate(ctx context.Context, s *Snapshot, requested time.Time) {
	if w.options.terminate == nil {
		return
	}
	w.noteSilence(s)
	present := make(map[string]bool)
	for i := range s.Holders {
		present[s.Holders[i].processID()] = true
	}
	maps.DeleteFunc(w.terminated, func(id string, _ bool) bool { return !present[id] })
	var failed error
	tried := make(map[string]bool)
	for _, f := range w.diagnosis.open {
		if f.Kind != LateHeartbeat || f.Holder.Lease != nil { // a lease ends by itself
			continue
		}
		id := f.Holder.processID()
		silence := requested.Sub(w.silent[f.Holder.lastSign()])
		if tried[id] || w.terminated[id] || silence < w.diagnosis.lateAge(f.Holder.Registration) || !w.options.terminate(f) {
			continue
		}
		tried[id] = true
		err := w.end(ctx, f)
		if ctx.Err() != nil {
			return
		}
		if failed == nil {
			failed = err
		}
		if errors.Is(err, sqllock.ErrUnavailable) {
			break
		}
	}
	w.notePart(partTerminate, failed)
}

// end ends the session of f's holder if it has been silent since the Snapshot. So
// it has written no heartbeat. The log says so before, since the server's reply
// may be lost.
func (w *watchdog) end(ctx context.Context, f Finding) error {
	h := f.Holder
	w.options.log.Warn("lockwatch: asking the server to end a session whose heartbeat is late", "pid", h.Process.PID)
	done, err := ask(ctx, w.inspector, bound.Of(lookTimeout), func(ctx context.Context) (bool, error) {
		return postgres.EndProcess(ctx, w.db, h.Process.PID, h.Process.Start, h.Process.StateSince)
	})
	if done {
		w.terminated[h.processID()] = true
		f.Terminated = true
		w.reportAll([]Finding{f})
	}
	return withAdvice(err)
}
