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

// A use is a key and the mode in which calls use it.
type use struct {
	key   sqllock.Key
	reads bool
}

// rivals returns the uses that keep a call from using k.
func rivals(k sqllock.Key, reads bool) []use {
	if reads {
		return []use{{k, false}}
	}
	return []use{{k, false}, {k, true}}
}

func newBook() book {
	return book{users: make(map[use]int), left: make(map[use]int), unclear: make(map[use]time.Duration)}
}

// arrive notes that a call for keys begins, and returns the moment.
func (w *world) arrive(keys []sqllock.Key, reads bool) int {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, k := range keys {
		w.book.users[use{k, reads}]++
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

// leave notes that a call for keys has ended. If the state of the keys is
// unclear, a later call may get ErrHeld for a while as long as the server holds
// them.
func (w *world) leave(keys []sqllock.Key, reads bool, how departure) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.book.moment++
	for _, k := range keys {
		u := use{k, reads}
		w.book.users[u]--
		if how != leftDenied {
			w.book.left[u] = w.book.moment
		}
		if how == leftUnclear {
			w.book.unclear[u] = now() + w.doubt()
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

// judgeDenial checks an ErrHeld for keys. Another call must have held or wanted
// each key during the call, which began at the moment arrived. Of a set it is
// enough if that is so for one key. Calls that got ErrHeld at the same time do
// not count.
func (w *world) judgeDenial(c call, keys []sqllock.Key, arrived int, began time.Duration) {
	excused := 0
	var suspects []sqllock.Key
	for _, k := range keys {
		owned := w.server.ownedSince(k, c.Op.reads(), began)
		w.mu.Lock()
		unclear := slices.ContainsFunc(rivals(k, c.Op.reads()), func(u use) bool { return now() < w.book.unclear[u] })
		w.mu.Unlock()
		if owned && unclear {
			excused++
		} else {
			suspects = append(suspects, k)
		}
	}
	w.leave(keys, c.Op.reads(), leftDenied)
	w.rest(1) // until the other calls have returned, too
	w.mu.Lock()
	for _, k := range suspects {
		if slices.ContainsFunc(rivals(k, c.Op.reads()), func(u use) bool { return w.book.users[u] > 0 || w.book.left[u] > arrived }) {
			excused++
		}
	}
	w.mu.Unlock()
	if excused < len(keys) && (excused == 0 || !c.Op.takesAll()) {
		w.wrong("a call is denied although no other has the key", fmt.Sprint(c.Op, " of ", len(keys), " keys"))
	}
}
