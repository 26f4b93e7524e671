package sqllock

import (
	"errors"
	"time"

	"github.com/latchkey-go/latchkey/internal/dialect"
)

// reconcile finds out, after a statement that failed on a session that lives,
// what the session holds: a statement that fails half-way keeps what it had
// taken until then.
func (l *lease) reconcile(err error) bool {
	keys, heldErr := l.holdings()
	if heldErr != nil {
		l.lose(heldErr.Error())
		return false
	}
	holds := setOf(keys)
	if !l.accountFor(holds) {
		l.lose(lossHeld)
		return false
	}
	t, f := l.backend.s.table, &l.flight
	t.mu.Lock()
	defer t.mu.Unlock()
	answered := now()
	if !l.answeredLocked(answered) {
		return false
	}
	for _, e := range f.releases {
		if holds[e.asked()] {
			t.releaseLocked(e)
		} else {
			l.freedLocked(e)
		}
	}
	wanted := f.tries
	for _, groups := range [][]group{f.groups, f.sets} {
		for _, g := range groups {
			wanted = append(wanted, g.entries...)
		}
	}
	for _, e := range wanted {
		if holds[e.asked()] {
			l.grantedLocked(e, answered)
		} else {
			l.refusedLocked(e, err)
		}
	}
	f.clear()
	return true
}

// bears reports whether l lives, and holds what it held, after err of a statement
// beside those of locks; if not, l is lost. The words of an error alone do not
// tell: what ended the session may look like one of the statement.
func (l *lease) bears(err error) bool {
	if !survived(err) {
		l.lose(err.Error())
		return false
	}
	keys, err := l.holdings()
	if err != nil {
		l.lose(err.Error())
		return false
	}
	if !l.accountFor(setOf(keys)) {
		l.lose(lossHeld)
		return false
	}
	return true
}

func setOf(keys []dialect.Key) map[dialect.Key]bool {
	set := make(map[dialect.Key]bool, len(keys))
	for _, k := range keys {
		set[k] = true
	}
	return set
}

// holdings is what the session holds. What kept the statement from succeeding
// may keep this question, too, for a moment: it is asked again while the lease
// lasts.
func (l *lease) holdings() ([]dialect.Key, error) {
	for pause := pollMin; ; pause = min(2*pause, pollAway) {
		keys, err := l.session.Held()
		if err == nil || !survived(err) {
			return keys, err
		}
		timer := time.NewTimer(pause)
		select {
		case <-timer.C:
		case <-l.gone:
			timer.Stop()
			return nil, err
		}
	}
}

// survived reports whether err is of a statement that failed on a session that
// lives.
func survived(err error) bool {
	var failure *dialect.Failure
	return errors.As(err, &failure) && (failure.Kind == dialect.Statement || failure.Kind == dialect.Full)
}

// accountFor reports whether every lock on l is among those that the session
// holds, and whether it is worth going on with it.
func (l *lease) accountFor(holds map[dialect.Key]bool) bool {
	const tooMany = 10
	t := l.backend.s.table
	t.mu.Lock()
	defer t.mu.Unlock()
	if len(l.flight.releases) > 0 {
		l.failed++ // to release needs no room: it should not fail
	}
	for e := range t.entries.all() {
		if e.holds.lease == l && e.state != freeing && !holds[e.asked()] {
			return false
		}
	}
	return l.failed < tooMany
}
