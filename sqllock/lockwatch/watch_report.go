package lockwatch

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"github.com/latchkey-go/latchkey/sqllock"
)

// notePart notes how a part of the work went, and tells when that changes between well and not, or for another
// reason.
func (w *watchdog) notePart(name string, err error) {
	f, failing := w.failures[name]
	if failing && err != nil && sameReason(f.Err, err) {
		return
	}
	if failing {
		delete(w.failures, name)
		f.Over = true
		if err == nil {
			w.options.log.Info("lockwatch: the watchdog can do its work again", "part", name)
		}
		w.report(f)
	}
	if err != nil {
		f = Finding{Kind: WatchFailed, Since: time.Now(), Err: err}
		w.failures[name] = f
		w.options.log.Error("lockwatch: the watchdog cannot do its work in full", "error", err)
		w.report(f)
	}
}

// sameReason is whether two errors need not be told apart: a database that is away is so in many words.
func sameReason(a, b error) bool {
	return a.Error() == b.Error() || errors.Is(a, sqllock.ErrUnavailable) && errors.Is(b, sqllock.ErrUnavailable)
}

// reportAll reports findings one by one. The log has a line for all of one kind of one process.
func (w *watchdog) reportAll(news, over []Finding) {
	for _, findings := range [][]Finding{over, news} {
		w.log(findings)
		for _, f := range findings {
			w.report(f)
		}
	}
}

// A line is what the log says of findings that are alike.
type line struct {
	kind       FindingKind
	pid        int
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
		l := line{f.Kind, f.Holder.Process.PID, f.Over, f.Terminated}
		if locks[l]++; locks[l] == 1 {
			lines = append(lines, l)
		}
	}
	for _, l := range lines {
		level, text := l.words()
		attributes := []any{"pid", l.pid}
		if !l.terminated { // with it all locks go
			attributes = append(attributes, "locks", locks[l])
		}
		w.options.log.Log(context.Background(), level, text, attributes...)
	}
}

func (l line) words() (slog.Level, string) {
	switch {
	case l.terminated:
		return slog.LevelWarn, "lockwatch: a session whose heartbeat was late was ended, with all its locks"
	case l.kind == LateHeartbeat && l.over:
		return slog.LevelInfo, "lockwatch: locks whose heartbeat was late are gone, or it came"
	case l.kind == LateHeartbeat:
		return slog.LevelWarn, "lockwatch: locks are held whose heartbeat is late"
	case l.kind == RegistryNotWritten && l.over:
		return slog.LevelInfo, "lockwatch: locks whose registration was not renewed are gone, or it was, or they are late"
	case l.kind == RegistryNotWritten:
		return slog.LevelWarn, "lockwatch: the registry is not written for locks whose session lives"
	case l.over:
		return slog.LevelInfo, "lockwatch: locks held for long are gone"
	}
	return slog.LevelWarn, "lockwatch: locks are held for long"
}

// logCycle leaves out the keys.
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
