package simulation

import (
	"fmt"
	"time"

	"github.com/latchkey-go/latchkey/internal/dialect"
	"github.com/latchkey-go/latchkey/sqllock"
)

// killed is when the server ended the lock's session without warning; 0: it
// has not. A holder cannot know before its next statement: the promise has
// this gap, for locks that a server gives up by itself.
func (w *world) killed(h *holder) time.Duration {
	w.server.mu.Lock()
	defer w.server.mu.Unlock()
	return h.conn.killed
}

// justWoke reports whether the lock's machine was suspended within the lease.
// Until a statement sets the deadline of the timer right, Err is the first to
// see a loss then.
func (w *world) justWoke(h *holder) bool {
	w.server.mu.Lock()
	defer w.server.mu.Unlock()
	woke := h.conn.link.woke
	return woke != 0 && now()-woke < lease
}

// check checks what must hold at any moment at which nothing is going on.
func (w *world) check() {
	valid := make(map[sqllock.Key]int)
	for _, h := range w.held() {
		told := h.told()
		if h.lock.Err() != nil {
			if !told && (h.seenLost || !w.justWoke(h)) {
				w.wrong("a lock is lost and its work goes on", "")
			}
			h.seenLost = true
			continue
		}
		if killed := w.killed(h); killed != 0 {
			if now()-killed > validFor {
				w.wrong("a lock outlives its session", fmt.Sprint(now()-killed))
			}
			continue
		}
		if valid[h.lock.Key()]++; valid[h.lock.Key()] > 1 {
			w.wrong("two hold one key", "")
		}
		if w.server.owner(h.lock.Key()) != h.conn {
			w.wrong("a lock is valid that the server has freed", "")
		}
	}
}

// granting checks, when the server grants k to a session, that no other lock on
// it is valid. server.mu is held.
func (w *world) granting(k dialect.Key, to *session) {
	w.mu.Lock()
	w.figures["grants"]++
	w.takes++
	w.taken[serverGrant{k, to}] = w.takes
	w.last[clientKey{k, to.link}] = to
	w.mu.Unlock()
	for _, h := range w.held() {
		if dialectKey(h.lock.Key()) == k && h.conn != to && h.conn.killed == 0 && h.lock.Err() == nil {
			w.wrong("the server grants a key whose lock is valid", "")
		}
	}
}

// closing checks, when a client closes a connection, that the locks on it have
// ended: the server frees them now.
func (w *world) closing(s *session) {
	for _, h := range w.held() {
		if h.conn == s && h.lock.Err() == nil {
			w.wrong("a connection is closed before its locks end", "")
		}
	}
}

// within checks that a call took no longer than bound.
func (w *world) within(call string, began, bound time.Duration) {
	if took := now() - began; took > bound {
		w.wrong("a call takes too long", fmt.Sprintf("%s: %v", call, took))
	}
}

// A serverGrant is that the server gave a session a key.
type serverGrant struct {
	key dialect.Key
	to  *session
}

// A clientKey is a key that a client has taken.
type clientKey struct {
	key  dialect.Key
	link *link
}

// tokenLog is the tokens drawn for each key, by the grant's number.
type tokenLog map[sqllock.Key]map[grantNumber]string

// A grantNumber orders the holders of a key: as the server granted it, and, where a process
// handed it on, as its callers got it. A late answer of the server's is of an earlier
// grant.
type grantNumber struct{ take, granted int }

func (n grantNumber) before(other grantNumber) bool {
	if n.take != other.take {
		return n.take < other.take
	}
	return n.granted < other.granted
}

// noteToken checks that h's token is later than those of earlier holders and
// earlier than those of later ones.
func (w *world) noteToken(h *holder, token string) {
	w.mu.Lock()
	drawn := w.tokens[h.lock.Key()]
	if drawn == nil {
		drawn = make(map[grantNumber]string)
		w.tokens[h.lock.Key()] = drawn
	}
	fair := true
	for number, other := range drawn {
		switch {
		case number.before(h.number):
			fair = fair && other < token
		case h.number.before(number):
			fair = fair && token < other
		default:
			fair = fair && token == other
		}
	}
	drawn[h.number] = token
	w.figures["tokens"]++
	w.mu.Unlock()
	if !fair {
		w.wrong("tokens do not rise from holder to holder", token)
	}
}
