package simulation

import (
	"fmt"
	"time"

	"github.com/latchkey-go/latchkey/sqllock"
)

// A book records which calls want or hold a key, as the callers know it. It
// decides whether an ErrHeld was right.
//
// A moment counts the arrivals and departures of calls.
type book struct {
	moment  int                           // the present
	users   map[sqllock.Key]int           // calls that want or hold the key
	left    map[sqllock.Key]int           // the moment when a call last ended that may have held the key
	unclear map[sqllock.Key]time.Duration // until then the server may hold the key for no caller
}

func newBook() book {
	return book{
		users: make(map[sqllock.Key]int), left: make(map[sqllock.Key]int),
		unclear: make(map[sqllock.Key]time.Duration),
	}
}

// arrive notes that a call for keys begins, and returns the moment.
func (w *world) arrive(keys []sqllock.Key) int {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, k := range keys {
		w.book.users[k]++
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
func (w *world) leave(keys []sqllock.Key, how departure) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.book.moment++
	for _, k := range keys {
		w.book.users[k]--
		if how != leftDenied {
			w.book.left[k] = w.book.moment
		}
		if how == leftUnclear {
			w.book.unclear[k] = now() + w.doubt()
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
// each key during the call, which began at the moment arrived. Calls that got
// ErrHeld at the same time do not count.
func (w *world) judgeDenial(keys []sqllock.Key, arrived int, began time.Duration) {
	var suspects []sqllock.Key
	for _, k := range keys {
		owned := w.server.ownedSince(k, began)
		w.mu.Lock()
		if unclear := now() < w.book.unclear[k]; !owned || !unclear {
			suspects = append(suspects, k)
		}
		w.mu.Unlock()
	}
	w.leave(keys, leftDenied)
	w.rest(1) // until the other calls have returned, too
	w.mu.Lock()
	fair := true
	for _, k := range suspects {
		fair = fair && (w.book.users[k] > 0 || w.book.left[k] > arrived)
	}
	w.mu.Unlock()
	if !fair {
		w.wrong("a call is denied although no other has the key", fmt.Sprint(len(keys), " keys"))
	}
}
