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
// one kind and one server process, or one session of a lease table. It has no keys
// and no names.
func (w *watchdog) reportAll(findings []Finding) {
	type line struct {
		text    string
		level   slog.Level
		pid     int
		session int64
	}
	locks := make(map[line]int)
	var lines []line
	for _, f := range findings {
		level, text := f.logged()
		if c := f.Cycle; c != nil {
			processes := make([]int, len(c.Waits))
			for i, wait := range c.Waits {
				processes[i] = wait.PID
			}
			w.options.log.Log(context.Background(), level, text, "pids", processes, "certain", c.Certain, "ends_by_itself", c.EndsByItself)
			continue
		}
		l := line{text, level, f.Holder.Process.PID, f.Holder.leaseSession()}
		if locks[l]++; locks[l] == 1 {
			lines = append(lines, l)
		}
	}
	for _, l := range lines {
		who := slog.Int("pid", l.pid)
		if l.session != 0 {
			who = slog.Int64("session", l.session)
		}
		w.options.log.LogAttrs(context.Background(), l.level, l.text, who, slog.Int("locks", locks[l]))
	}
	for _, f := range findings {
		w.report(f)
	}
}

// logged returns the line of the log for f.
func (f Finding) logged() (slog.Level, string) {
	switch {
	case f.Terminated:
		return slog.LevelWarn, "lockwatch: a session with a late heartbeat was ended, with all its locks"
	case f.Over:
		return slog.LevelInfo, ended[f.Kind]
	}
	return slog.LevelWarn, begins[f.Kind]
}

var begins = map[FindingKind]string{
	LateHeartbeat:      "lockwatch: the heartbeat of held locks is late",
	RegistryNotWritten: "lockwatch: a session is alive, but the registry is not written for its locks",
	HeldLong:           "lockwatch: locks are held for long",
	WaitCycle:          "lockwatch: sessions wait for each other",
}

var ended = map[FindingKind]string{
	LateHeartbeat:      "lockwatch: a late heartbeat has come, or its locks are gone",
	RegistryNotWritten: "lockwatch: the registry is written again, or the locks are gone, or they are late",
	HeldLong:           "lockwatch: locks that were held for long are gone",
	WaitCycle:          "lockwatch: sessions wait for each other no longer",
}
