package lockui

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/latchkey-go/latchkey/sqllock"
	"github.com/latchkey-go/latchkey/sqllock/lockwatch"
)

// maxPast bounds the findings that are remembered after their end.
const maxPast = 50

// A state is what the poller knows at one moment. It is never changed: all viewers
// share it.
type state struct {
	snapshot *lockwatch.Snapshot // the last one; nil: none yet
	taken    time.Time           // when snapshot arrived, by this process's clock
	asked    time.Time           // when the look under way began; zero: none is
	ended    time.Time           // when the last look ended
	err      error               // of the last look; nil if it gave snapshot
	looks    uint64              // looks that have ended

	locks  []heldLock        // of snapshot, in the order of the page
	cycles []lockwatch.Cycle // of snapshot
	open   []lockwatch.Finding
	past   []lockwatch.Finding // those that are over, the last one first
}

// after returns the state after a look.
func (s *state) after(r result, d *lockwatch.Diagnosis) *state {
	next := *s
	next.asked, next.ended, next.err = time.Time{}, time.Now(), r.err
	next.looks++
	if r.err != nil {
		return &next
	}
	_, over := d.Look(r.snapshot)
	slices.Reverse(over)
	next.snapshot, next.taken = r.snapshot, next.ended
	next.cycles = r.snapshot.Cycles()
	next.locks = heldLocks(r.snapshot)
	next.open = d.Open()
	next.past = slices.Concat(over, s.past)
	next.past = next.past[:min(len(next.past), maxPast)]
	return &next
}

// old reports whether a request should wait for a newer state. It should not while
// the database is slow to answer.
func (s *state) old() bool {
	slow := !s.asked.IsZero() && time.Since(s.asked) > viewTimeout
	return time.Since(s.ended) > 2*tick && !slow
}

// A databaseView says how good the rest of a view is. It is in every view that
// needs the database.
type databaseView struct {
	Dialect string   `json:"dialect,omitempty"`     // the kind of the database; empty: not known yet
	State   string   `json:"state"`                 // "ok", "away", "waiting" or "unsupported"; "ok" only if the locks are as of a moment ago
	Text    string   `json:"text"`                  // the state in a sentence
	Taken   string   `json:"taken,omitempty"`       // when the locks were read, RFC 3339, by the database's clock; empty: never
	Age     *seconds `json:"age_seconds,omitempty"` // since then
	Silent  seconds  `json:"silent_seconds"`        // how long the look under way has waited
	Hidden  int      `json:"hidden_registrations"`  // that this role may not check
	Waits   bool     `json:"waits_known"`           // callers that wait in a Session with a registry are known
	Notes   []string `json:"notes,omitempty"`       // what is not seen in full, and why
}

// database describes s.
func (s *state) database() databaseView {
	v := databaseView{State: "ok", Text: "The database answers."}
	asked, waits := time.Now(), time.Duration(0)
	if !s.asked.IsZero() {
		asked, waits = s.asked, time.Since(s.asked)
	}
	v.Silent = secondsOf(waits)
	const late = 3 * tick
	idle := asked.Sub(s.ended) > late // the page had no viewer before, so err says nothing about now
	switch {
	case s.err != nil && !idle:
		v.State, v.Text = reason(s.err)
	case waits > late:
		v.State, v.Text = "away", "The database has not answered the last question yet."
	case s.snapshot == nil:
		v.State, v.Text = "waiting", "The page asks the database, which has not answered yet."
	case time.Since(s.taken) > late:
		v.State, v.Text = "waiting", "The page asks the database again, which has not answered yet."
	}
	if s.snapshot == nil {
		return v
	}
	v.Dialect = string(s.snapshot.Dialect)
	v.Taken = s.snapshot.At.UTC().Format(time.RFC3339Nano)
	v.Age = since(s.taken, time.Now())
	v.Hidden = s.snapshot.Hidden
	v.Waits = s.snapshot.Waits == lockwatch.TableRead
	v.Notes = notes(s.snapshot)
	return v
}

// reason returns the state and a sentence for the error of a look. The sentence is
// one of a few: an error of a driver may name a host.
func reason(err error) (state, text string) {
	switch {
	case errors.Is(err, errPoolFull):
		return "away", "The database does not answer, and all connections of this page's pool are in use: the pool is too small, or the database is slow."
	case errors.Is(err, errors.ErrUnsupported):
		return "unsupported", "This database does not show its locks to this page. The documentation of lockwatch.Inspect says what to change."
	case errors.Is(err, sqllock.ErrNotExclusive):
		return "away", "The database is a standby, whose locks are its own. Connect this page to the primary."
	case errors.Is(err, sqllock.ErrConfig):
		return "away", "The database rejects this page's connection: its user, password, name or settings are wrong."
	case errors.Is(err, sqllock.ErrCapacity):
		return "away", "The database has no room for another lock or connection."
	case errors.Is(err, sqllock.ErrClosed):
		return "away", "The connection pool of this page is closed."
	case errors.Is(err, sqllock.ErrUnavailable), errors.Is(err, context.DeadlineExceeded):
		return "away", "The database does not answer."
	}
	return "away", "The database rejects the question. A right may be missing."
}

// notes says what s does not show in full.
func notes(s *lockwatch.Snapshot) (all []string) {
	advice := map[lockwatch.TableState]string{
		lockwatch.TableMissing:   " Create the registry with lockwatch.Schema and open each Session with sqllock.WithRegistry, or name its schema with lockui.WithSchema.",
		lockwatch.TableUntrusted: " If you trust its owner, name its schema with lockui.WithSchema.",
	}
	if s.Heartbeats != lockwatch.TableRead && s.Heartbeats != "" {
		all = append(all, "Namespaces, ages and heartbeats are not known: table latchkey_heartbeats is "+string(s.Heartbeats)+"."+advice[s.Heartbeats])
	}
	if s.Waits == s.Heartbeats { // the advice is there already
		advice = nil
	}
	switch {
	case s.Waits == "":
		all = append(all, "Callers that wait in a Session are not known: this kind of database has no registry.")
	case s.Waits != lockwatch.TableRead:
		all = append(all, "Callers that wait in a Session are not known: table latchkey_waits is "+string(s.Waits)+"."+advice[s.Waits])
	}
	if s.Leases == lockwatch.TableUnreadable || s.Leases == lockwatch.TableUntrusted {
		all = append(all, "Leases are not shown: table latchkey_locks is "+string(s.Leases)+".")
	}
	if s.Hidden > 0 {
		all = append(all, "Some registrations are not shown. This page's role needs pg_read_all_stats to check them.")
	}
	return all
}
