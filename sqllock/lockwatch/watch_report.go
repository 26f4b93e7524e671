package lockwatch

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"github.com/latchkey-go/latchkey/sqllock"
)

// notePart notes the result of one part of the work; a nil error means success. It
// reports a failure that begins, that ends, or that has another reason than before.
func (w *watchdog) notePart(p part, err error) {
	f, failing := w.failures[p]
	if failing && err != nil && sameReason(f.Err, err) {
		return
	}
	if failing {
		delete(w.failures, p)
		f.Over = true
		if err == nil {
			w.options.log.Info("lockwatch: the watchdog can do its work again", "part", string(p))
		}
		w.report(f)
	}
	if err != nil {
		f = Finding{Kind: WatchFailed, Since: time.Now(), Err: err}
		w.failures[p] = f
		w.options.log.Error("lockwatch: the watchdog cannot do its work in full", "error", err)
		w.report(f)
	}
}

// sameReason reports whether two errors mean the same to an operator. A database
// that is away has many texts.
func sameReason(a, b error) bool {
	return a.Error() == b.Error() || errors.Is(a, sqllock.ErrUnavailable) && errors.Is(b, sqllock.ErrUnavailable)
}

// reportAll reports findings one by one. The log has one line for all findings of
// one kind and one server process, or one session of a lease table.
func (w *watchdog) reportAll(begun, over []Finding) {
	for _, findings := range [][]Finding{over, begun} {
		w.log(findings)
		for _, f := range findings {
			w.report(f)
		}
	}
}

// A line is what findings have in common that share a line of the log.
type line struct {
	kind       FindingKind
	pid        int
	session    int64 // of a lease table; else 0
	over       bool
	terminated bool
}

func (w *watchdog) log(findings []Finding) {
	locks := make(map[line]int)
	var lines []line
	for _, f := range findings {
		if f.Cycle != nil {
			w.logCycle(f)
			continue
		}
		l := line{f.Kind, f.Holder.Process.PID, f.Holder.leaseSession(), f.Over, f.Terminated}
		if locks[l]++; locks[l] == 1 {
			lines = append(lines, l)
		}
	}
	for _, l := range lines {
		level, text := l.words()
		attributes := []any{"pid", l.pid}
		if l.session != 0 {
			attributes = []any{"session", l.session}
		}
		if !l.terminated { // all locks of the session end with it, reported or not
			attributes = append(attributes, "locks", locks[l])
		}
		w.options.log.Log(context.Background(), level, text, attributes...)
	}
}

func (l line) words() (slog.Level, string) {
	switch {
	case l.terminated:
		return slog.LevelWarn, "lockwatch: a session with a late heartbeat was ended, with all its locks"
	case l.kind == LateHeartbeat && l.over:
		return slog.LevelInfo, "lockwatch: a late heartbeat has come, or its locks are gone"
	case l.kind == LateHeartbeat:
		return slog.LevelWarn, "lockwatch: the heartbeat of held locks is late"
	case l.kind == RegistryNotWritten && l.over:
		return slog.LevelInfo, "lockwatch: the registry is written again, or the locks are gone, or they are late"
	case l.kind == RegistryNotWritten:
		return slog.LevelWarn, "lockwatch: a session is alive, but the registry is not written for its locks"
	case l.over:
		return slog.LevelInfo, "lockwatch: locks that were held for long are gone"
	}
	return slog.LevelWarn, "lockwatch: locks are held for long"
}

// logCycle logs a cycle without its keys.
func (w *watchdog) logCycle(f Finding) {
	level, text := slog.LevelWarn, "lockwatch: sessions wait for each other"
	if f.Over {
		level, text = slog.LevelInfo, "lockwatch: sessions wait for each other no longer"
	}
	processes := make([]int, len(f.Cycle.Waits))
	for i, wait := range f.Cycle.Waits {
		processes[i] = wait.PID
	}
	w.options.log.Log(context.Background(), level, text, "pids", processes, "certain", f.Cycle.Certain, "ends_by_itself", f.Cycle.EndsByItself)
}
