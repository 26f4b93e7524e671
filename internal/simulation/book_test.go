package simulation

import (
	"fmt"
	"slices"
	"time"

	"github.com/latchkey-go/latchkey/sqllock"
)

// A book records which calls want or hold a key, as the callers know it. It
// decides whether an ErrHeld was right.
//
// A moment counts the arrivals and departures of calls.
type book struct {
	moment  int                   // the present
	users   map[use]int           // calls that want or hold the key
	left    map[use]int           // the moment when a call last ended that may have held the key
	unclear map[use]time.Duration // until then the server may hold the key for no caller
}

// A use is a key and the mode in which calls use it: those of the client at a
// link, or of all clients.
type use struct {
	key   sqllock.Key
	reads bool
	at    *link // nil: all
}

// rivals returns the uses that keep a call from using k.
func rivals(k sqllock.Key, reads bool, at *link) []use {
	if reads {
		return []use{{k, false, at}}
	}
	return []use{{k, false, at}, {k, true, at}}
}

func newBook() book {
	return book{users: make(map[use]int), left: make(map[use]int), unclear: make(map[use]time.Duration)}
}

// arrive notes that a call of a client for keys begins, and returns the moment.
func (w *world) arrive(at *link, keys []sqllock.Key, reads bool) int {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, k := range keys {
		w.book.users[use{k, reads, nil}]++
		w.book.users[use{k, reads, at}]++
	}
	w.book.moment++
	return w.book.moment
}

// A departure says in which state a call leaves its keys.
type departure int

const (
	leftFree    departure = iota // the call held them, and they are free
	leftDenied                   // the call never held them
	leftUnclear                  // the server may still hold them
)

// leave notes that a call of a client for keys has ended. If the state of the
// keys is unclear, a later call may get ErrHeld for a while as long as the server
// holds them.
func (w *world) leave(at *link, keys []sqllock.Key, reads bool, how departure) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.book.moment++
	for _, k := range keys {
		for _, u := range []use{{k, reads, nil}, {k, reads, at}} {
			w.book.users[u]--
			if how != leftDenied {
				w.book.left[u] = w.book.moment
			}
			if how == leftUnclear {
				w.book.unclear[u] = now() + w.doubt()
			}
		}
	}
}

// doubt returns how long the server may hold a key that no caller wants.
func (w *world) doubt() time.Duration {
	if w.harmless {
		return goodTime
	}
	return 2*lease + recovery
}

// judgeDenial checks an ErrHeld for keys, of which some were seen held. Each of
// them must have been held at the server at some time during the call, which
// began at the moment arrived, and wanted by another call. Or a call of the same
// client wanted it. Of a set it is enough if that is so for one key. Calls that
// got ErrHeld at the same time do not count.
func (w *world) judgeDenial(c call, keys, seen []sqllock.Key, arrived int, began time.Duration) {
	here := w.client(c.Client).link
	excused := 0
	var suspects, owned []sqllock.Key
	for _, k := range seen {
		atServer := w.server.ownedSince(k, c.Op.reads(), began)
		w.mu.Lock()
		unclear := slices.ContainsFunc(rivals(k, c.Op.reads(), nil), func(u use) bool { return now() < w.book.unclear[u] })
		w.mu.Unlock()
		switch {
		case atServer && unclear:
			excused++
		case atServer:
			owned = append(owned, k)
		default:
			suspects = append(suspects, k)
		}
	}
	w.leave(here, keys, c.Op.reads(), leftDenied)
	w.rest(1) // until the other calls have returned, too
	w.mu.Lock()
	used := func(k sqllock.Key, at *link) bool {
		return slices.ContainsFunc(rivals(k, c.Op.reads(), at), func(u use) bool { return w.book.users[u] > 0 || w.book.left[u] > arrived })
	}
	for _, k := range owned {
		if used(k, nil) {
			excused++
		}
	}
	for _, k := range suspects {
		if used(k, here) {
			excused++
		}
	}
	w.mu.Unlock()
	if excused < len(seen) && (excused == 0 || !c.Op.takesAll()) {
		w.wrong("a call is denied although no other has the key", fmt.Sprint(c.Op, " of ", len(seen), " keys"))
	}
}
