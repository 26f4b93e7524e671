package simulation

import (
	"fmt"
	"time"

	"github.com/latchkey-go/latchkey/sqllock"
)

// A book is what the callers themselves know of who uses which key: enough
// to tell whether a refusal is true.
type book struct {
	moment  int                           // counts what follows
	users   map[sqllock.Key]int           // calls that want the key, or have it
	left    map[sqllock.Key]int           // the moment when one of them last ended that may have had it
	moved   map[sqllock.Key]time.Duration // when users last changed
	unclear map[sqllock.Key]time.Duration // until then somebody may have it who does not know, or does not tell
}

func newBook() book {
	return book{
		users: make(map[sqllock.Key]int), left: make(map[sqllock.Key]int),
		moved: make(map[sqllock.Key]time.Duration), unclear: make(map[sqllock.Key]time.Duration),
	}
}

// arrive notes a call for keys, and returns the moment.
func (w *world) arrive(keys []sqllock.Key) int {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, k := range keys {
		w.book.users[k]++
		w.book.moved[k] = now()
	}
	w.book.moment++
	return w.book.moment
}

// A departure is what is known of keys that a call is done with.
type departure int

const (
	leftFree    departure = iota // it had them, and they are free
	leftDenied                   // it never had them
	leftUnclear                  // it may have left them behind
)

// leave notes that a call is done with keys. Of unclear ones the server's account
// is believed for a while.
func (w *world) leave(keys []sqllock.Key, how departure) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.book.moment++
	for _, k := range keys {
		w.book.users[k]--
		w.book.moved[k] = now()
		if how != leftDenied {
			w.book.left[k] = w.book.moment
		}
		if how == leftUnclear {
			w.book.unclear[k] = now() + w.doubt()
		}
	}
}

// doubt is how long a key may be held that nobody wants any more.
func (w *world) doubt() time.Duration {
	if w.harmless {
		return goodTime
	}
	return 2*lease + recovery
}

// judgeDenial checks that somebody else may have had, or wanted, each of keys
// during a call that began then, as this moment in the book, and has been told
// "held". Calls that got the same answer at the same time are no excuse.
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
	w.rest(1) // the others have their answers, too
	w.mu.Lock()
	fair := true
	for _, k := range suspects {
		fair = fair && (w.book.users[k] > 0 || w.book.left[k] > arrived)
	}
	w.mu.Unlock()
	if !fair {
		w.wrong("a call is refused although nobody has the key", fmt.Sprint(len(keys), " keys"))
	}
}

// inVain reports whether a caller waits for one of keys although nobody has had
// or wanted it for long. A key whose secret is disputed is not to be had.
func (w *world) inVain(keys []sqllock.Key) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, k := range keys {
		if k.Namespace() != "" && w.plan.TwoSecrets {
			continue
		}
		if w.book.users[k] <= 1 && now() >= max(w.book.unclear[k], w.book.moved[k]+goodTime) {
			return true
		}
	}
	return false
}
