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
	view  *lockwatch.View // the last one; of an empty Snapshot: none yet
	taken time.Time       // when view arrived, by this process's clock; zero: there is none
	asked time.Time       // when the look under way began; zero: none is
	ended time.Time       // when the last look ended
	err   error           // of the last look; nil if it gave view

	open []lockwatch.Finding
	past []lockwatch.Finding // those that are over, the last one first
}

// after returns the state after a look, which gave snapshot or err.
func (s *state) after(snapshot *lockwatch.Snapshot, err error, d *lockwatch.Diagnosis) *state {
	next := *s
	next.asked, next.ended, next.err = time.Time{}, time.Now(), err
	if err != nil {
		return &next
	}
	_, over := d.Look(snapshot)
	slices.Reverse(over)
	next.view, next.taken = d.View(), next.ended
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
	case s.taken.IsZero():
		v.State, v.Text = "waiting", "The page asks the database, which has not answered yet."
	case time.Since(s.taken) > late:
		v.State, v.Text = "waiting", "The page asks the database again, which has not answered yet."
	}
	if s.taken.IsZero() {
		return v
	}
	v.Dialect = string(s.view.Dialect)
	v.Taken = s.view.At.UTC().Format(time.RFC3339Nano)
	v.Age = since(s.taken, time.Now())
	v.Hidden = s.view.Hidden
	v.Waits = s.view.Snapshot.Waits == lockwatch.TableRead
	v.Notes = s.view.Gaps()
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
