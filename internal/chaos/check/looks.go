package check

import (
	"cmp"
	"errors"
	"slices"
	"time"

	"github.com/latchkey-go/latchkey/internal/chaos/history"
)

// What the error of Services matches if an operator, or a process that asked,
// was told something about locks that is not so.
var (
	ErrNotShown   = errors.New("check: a lock that is held was not shown, or not as that of its holder")
	ErrStillShown = errors.New("check: a lock was shown long after it was released, or its process killed")
	ErrWrongSince = errors.New("check: a lock was shown as held since another time")
	ErrWaitHidden = errors.New("check: a caller that waits was not shown")
	ErrWrongAge   = errors.New("check: a process was told a wrong age of a lock")
)

// RegistryTimes are the times of a registry.
type RegistryTimes struct {
	Written   time.Duration // within which a lock that is held, or a wait, is in the registry
	Forgotten time.Duration // within which one that has ended is not
	Closed    time.Duration // within which the server notices that a process is gone
	Expired   time.Duration // within which the last wait that a process wrote has expired
	Off       time.Duration // by how much a time in it may be wrong
	Valid     time.Duration // for how long a process uses an age that it has read
}

// looks checks what was shown of each lock, and of each wait:
//
//   - A lock that was certainly held during all of a look is shown.
//   - If it was held for Written before, it is shown under its name and that of
//     its process, as held since its grant.
//   - A name is shown for Forgotten after the lock's end at most, and never before
//     the lock was asked for. A trouble of its process adds to that time. The
//     process is that of the lock.
//   - A process that was killed is not shown after Closed. Its waits are not shown
//     after Expired.
//   - A caller that has waited for Written, and goes on, is shown as waiting.
//
// The first two and the last do not count in a time of trouble for the process.
func (c *services) looks(events []history.Event, rs *records, p ServiceParams) {
	l := &looking{
		services: c, times: *p.Registry, locks: map[int64]*lock{}, keys: map[int64]*record{},
		sessions: map[int64]int{}, killed: rs.killed(p.Kills),
	}
	for _, r := range rs.keys {
		l.keys[r.key] = r
		for _, k := range r.locks {
			l.locks[k.Lock] = k
			l.held.all = append(l.held.all, k)
		}
		for _, t := range r.tries {
			if t.Waits && t.Kind == history.Term {
				l.waiting.all = append(l.waiting.all, t)
			}
		}
	}
	l.held.prepare(func(k *lock) history.Moment { return k.granted })
	l.waiting.prepare(func(t history.Try) history.Moment { return t.Begin })
	var looks []*history.Look
	for _, e := range events {
		if e.Look != nil {
			looks = append(looks, e.Look)
			for _, h := range e.Look.Holders {
				l.sessions[h.Session] = h.Process
			}
		}
		if e.Age != nil {
			l.age(*e.Age)
		}
	}
	slices.SortFunc(looks, func(a, b *history.Look) int { return cmp.Compare(a.Begin, b.Begin) })
	for _, seen := range looks {
		l.look(seen)
	}
}

type looking struct {
	*services
	times    RegistryTimes
	locks    map[int64]*lock
	keys     map[int64]*record
	sessions map[int64]int          // processes, by Session
	killed   map[int]history.Moment // processes

	held    current[*lock]
	waiting current[history.Try] // to lead
}

// A current is things that began, sorted by that. A history has millions, of
// which few last at a moment.
type current[T any] struct {
	all   []T
	begin func(T) history.Moment
	n     int // of all, those that have begun
	last  []T // of these, those that may not have ended
}

func (c *current[T]) prepare(begin func(T) history.Moment) {
	c.begin = begin
	slices.SortFunc(c.all, func(a, b T) int { return cmp.Compare(begin(a), begin(b)) })
}

// at returns those that began by m, and did not end before m. The moments of its
// calls must rise.
func (c *current[T]) at(m history.Moment, end func(T) history.Moment) []T {
	for ; c.n < len(c.all) && c.begin(c.all[c.n]) <= m; c.n++ {
		c.last = append(c.last, c.all[c.n])
	}
	c.last = slices.DeleteFunc(c.last, func(x T) bool { return end(x) < m })
	return c.last
}

// look checks one Look.
func (l *looking) look(seen *history.Look) {
	if seen.Failed {
		l.count(&l.Blind, seen.Begin, seen.End)
		return
	}
	l.count(&l.Looks, seen.Begin, seen.End)
	shown := map[int64][]history.Shown{}
	for _, h := range seen.Holders {
		shown[h.Key] = append(shown[h.Key], h)
		if h.Process != 0 {
			l.registration(seen, h)
		}
	}
	waits := map[int64][]history.Poll{}
	for _, w := range seen.Waiters {
		waits[w.Key] = append(waits[w.Key], w)
		if at, ok := l.killed[l.sessions[w.Session]]; ok && seen.Begin > at+history.Moment(l.times.Expired) {
			l.found.add(ErrStillShown, w)
		}
	}
	for _, k := range l.held.at(seen.Begin, (*lock).until) {
		if k.until() >= seen.End && !l.trouble.at(k.Process, k.granted, seen.End) {
			l.isShown(seen, k, shown[k.Key])
		}
	}
	for _, t := range l.waiting.at(seen.Begin, func(t history.Try) history.Moment { return t.End }) {
		if t.Begin+history.Moment(l.times.Written) < seen.Begin && t.End > seen.End && !l.trouble.at(t.Process, t.Begin, seen.End) {
			l.waitIsShown(t, waits[t.Key])
		}
	}
}

// isShown checks that k, which was held all the while, is among shown.
func (l *looking) isShown(seen *history.Look, k *lock, shown []history.Shown) {
	l.Shown++
	if len(shown) == 0 {
		l.found.add(ErrNotShown, k.Hold)
	}
	if k.granted+history.Moment(l.times.Written) > seen.Begin || k.Kind == history.Reader {
		return
	}
	for _, h := range shown {
		if h.Lock == k.Lock && h.Process == k.Process {
			l.Named++
			return
		}
	}
	l.found.add(ErrNotShown, k.Hold)
}

// registration checks h, of which the registry has something.
func (l *looking) registration(seen *history.Look, h history.Shown) {
	if at, ok := l.killed[h.Process]; ok && seen.Begin > at+history.Moment(l.times.Closed) {
		l.found.add(ErrStillShown, h)
	}
	k := l.locks[h.Lock]
	switch {
	case h.Lock == 0: // of a moment at which its holder had not named it
	case k == nil:
		if _, ok := l.killed[h.Process]; !ok {
			l.found.add(ErrNotShown, h)
		}
	case k.Process != h.Process || k.Key != h.Key || k.asked > seen.End:
		l.found.add(ErrNotShown, h)
	case k.Ended != 0 && seen.Begin > l.forgotten(k):
		l.found.add(ErrStillShown, h)
	case k.Kind != history.Reader && !l.within(k, seen.Begin-h.For, seen.End-h.For):
		l.found.add(ErrWrongSince, h)
	}
}

// forgotten is when k, which has ended, is not shown any more. A process in
// trouble may be unable to write that until the trouble is over. Its session may
// hold the key once more, for a call that has not returned.
func (l *looking) forgotten(k *lock) history.Moment {
	d := history.Moment(l.times.Forgotten)
	for at := k.Ended; ; {
		over := l.trouble.latest(k.Process, at, at+d)
		if over <= at {
			return at + d
		}
		at = over
	}
}

// within reports whether k may have been granted at a moment between two.
func (l *looking) within(k *lock, from, to history.Moment) bool {
	off := history.Moment(l.times.Off)
	return to >= k.asked-off && from <= k.granted+off
}

func (l *looking) waitIsShown(t history.Try, waits []history.Poll) {
	l.Waiting++
	for _, w := range waits {
		if p, known := l.sessions[w.Session]; !known || p == t.Process {
			return
		}
	}
	l.found.add(ErrWaitHidden, t)
}

// age checks an answer about the age of a lock:
//
//   - A lock of the process itself is known.
//   - An age is that of a lock which was held, or may have been when the age was
//     read.
func (l *looking) age(a history.Age) {
	r := l.keys[a.Key]
	if r == nil {
		return
	}
	right := false
	for _, k := range r.locks {
		own := k.Process == a.Process && k.granted <= a.Begin && k.until() >= a.End
		if own && !a.OK {
			l.found.add(ErrWrongAge, a)
		}
		if k.asked <= a.End && l.within(k, a.Begin-a.For, a.End-a.For) &&
			(k.Ended == 0 || l.forgotten(k)+history.Moment(l.times.Valid) >= a.Begin) {
			right = true
		}
	}
	switch {
	case a.OK && !right:
		l.found.add(ErrWrongAge, a)
	case a.OK:
		l.count(&l.Ages, a.Begin, a.End)
	}
}
