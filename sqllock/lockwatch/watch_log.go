package lockwatch

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
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
// one kind about locks, and one for each cycle. It has no keys and no names.
func (w *watchdog) reportAll(findings []Finding) {
	locks, who := make(map[string]int), make(map[string][]any)
	for _, f := range findings {
		level, text := f.logged()
		if c := f.Cycle; c != nil {
			var pids []int
			for _, wait := range c.Waits {
				pids = append(pids, wait.PID)
			}
			w.options.log.Log(context.Background(), level, text, "pids", pids, "ends_by_itself", c.EndsByItself)
			continue
		}
		locks[text]++
		id := any(f.Holder.Process.PID)
		if f.Holder.Lease != nil {
			id = fmt.Sprint("lease ", f.Holder.Lease.Session)
		}
		if !slices.Contains(who[text], id) {
			who[text] = append(who[text], id)
		}
	}
	for _, f := range findings {
		if level, text := f.logged(); locks[text] > 0 {
			w.options.log.Log(context.Background(), level, text, "pids", who[text], "locks", locks[text])
			locks[text] = 0
		}
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
