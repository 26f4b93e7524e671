package simulation

import (
	"fmt"
	"time"

	"github.com/latchkey-go/latchkey/internal/dialect"
	"github.com/latchkey-go/latchkey/sqllock"
)

// killed returns when the server ended the session of h without warning, or 0 if
// it did not. A holder cannot know of that before its next statement. This is a
// gap in the promise.
func (w *world) killed(h *holder) time.Duration {
	w.server.mu.Lock()
	defer w.server.mu.Unlock()
	return h.conn.killed
}

// justWoke reports whether the machine of h was suspended within the last lease.
// Then the timer may be late for a loss until the next statement sets it. Err is
// the first to see the loss.
func (w *world) justWoke(h *holder) bool {
	w.server.mu.Lock()
	defer w.server.mu.Unlock()
	woke := h.conn.link.woke
	return woke != 0 && now()-woke < lease
}

// check checks the rules that hold at every moment at which no goroutine runs:
//
//   - The context of the work has ended if the lock is lost.
//   - At most one lock of a key is valid, or locks of readers only, and the
//     server holds them.
//   - A lock whose session was killed is lost within validFor.
func (w *world) check() {
	valid := make(map[use]int)
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
		k := h.lock.Key()
		valid[use{k, h.key.IsShared(), nil}]++
		if alone := valid[use{k, false, nil}]; alone > 1 || alone == 1 && valid[use{k, true, nil}] > 0 {
			w.wrong("two hold one key", "")
		}
		if !w.server.holds(h.conn, h.key) {
			w.wrong("a lock is valid that the server has freed", "")
		}
	}
}

// granting checks that no other lock of k is valid when the server grants k to a
// session. server.mu is held.
func (w *world) granting(k dialect.Key, to *session) {
	w.mu.Lock()
	w.figures["grants"]++
	w.takes++
	w.taken[serverGrant{k, to}] = w.takes
	w.last[clientKey{k, to.link}] = to
	w.mu.Unlock()
	for _, h := range w.held() {
		if excludes(h.key, k) && h.conn != to && h.conn.killed == 0 && h.lock.Err() == nil {
			w.wrong("the server grants a key whose lock is valid", "")
		}
	}
}

// closing checks that all locks on a connection have ended when the client closes
// it, since the server then frees them.
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

// A serverGrant is a key and the session to which the server granted it.
type serverGrant struct {
	key dialect.Key
	to  *session
}

// A clientKey is a key and the client that took it.
type clientKey struct {
	key  dialect.Key
	link *link
}

// A tokenLog has the token of each grant of a key.
type tokenLog map[sqllock.Key]map[grantNumber]string

// A grantNumber orders the holders of a key. The order is that in which the
// server granted the key, even if a response was late. Where a process handed
// the key on without the server, it is the order in which the callers got it.
type grantNumber struct{ take, granted int }

func (n grantNumber) before(other grantNumber) bool {
	if n.take != other.take {
		return n.take < other.take
	}
	return n.granted < other.granted
}

// noteToken checks that the token of h is greater than those of earlier holders
// of the key, and smaller than those of later ones.
func (w *world) noteToken(h *holder, token string) {
	w.mu.Lock()
	given := w.tokens[h.lock.Key()]
	if given == nil {
		given = make(map[grantNumber]string)
		w.tokens[h.lock.Key()] = given
	}
	fair := true
	for number, other := range given {
		switch {
		case number.before(h.number):
			fair = fair && other < token
		case h.number.before(number):
			fair = fair && token < other
		default:
			fair = fair && token == other
		}
	}
	given[h.number] = token
	w.figures["tokens"]++
	w.mu.Unlock()
	if !fair {
		w.wrong("tokens do not rise from holder to holder", token)
	}
}
