package simulation

import (
	"context"
	"fmt"
	"strconv"
	"sync"
	"time"

	"github.com/latchkey-go/latchkey/sqllock"
)

// end ends the run. It ends all faults and checks that every client is served
// again. Then it closes the Sessions and checks that nothing is left.
func (w *world) end() {
	w.advance(w.server.heal(w.links()))
	if !w.failed() {
		w.advance(recovery)
		w.served("a key of its own", time.Millisecond+8*w.plan.Latency, func(client int) sqllock.Key { return sqllock.ID(int64(500 + client)) })
	}
	w.stop()
	for until := now() + 10*time.Second; !w.idle() && now() < until; {
		w.advance(tick)
	}
	if !w.idle() {
		w.wrong("a call does not return", "")
	}
	if !w.failed() {
		w.advance(recovery)
		w.nothingHeld()
		w.closedWhileIdle()
		w.served("one key in turn", 3*goodTime, func(int) sqllock.Key { return contendedKeys[0] })
	}
	for _, c := range w.clients {
		if s := w.retire(c); s != nil {
			_ = s.Close()
		}
		_ = c.db.Close()
	}
	if !w.failed() {
		w.advance(goodTime)
		w.nothingLeft()
	}
}

// links returns the links of all clients.
func (w *world) links() (links []*link) {
	for _, c := range w.clients {
		links = append(links, c.link)
	}
	return links
}

// served checks that each client can take a key and give it back within bound,
// all at the same time.
func (w *world) served(what string, bound time.Duration, key func(client int) sqllock.Key) {
	ctx, cancel := context.WithTimeout(background, bound)
	defer cancel()
	var wg sync.WaitGroup
	sessions := w.sessions()
	for i, s := range sessions {
		wg.Go(func() {
			w.countCall(s)
			lock, err := s.Lock(ctx, key(i))
			if err == nil {
				err = lock.Err()
			}
			if err == nil {
				err = lock.Unlock()
			}
			if err != nil {
				w.wrong("not served again after the faults", fmt.Sprint(what, ", client ", i, ": ", err))
			}
		})
	}
	wg.Wait()
	if len(sessions) < len(w.clients) {
		w.wrong("not open again after the faults", "")
	}
}

// nothingHeld checks that no Session and no server has a lock or a waiter left,
// and that each call has been counted once.
func (w *world) nothingHeld() {
	for _, s := range w.sessions() {
		stats := s.Stats()
		if stats.Held != 0 || stats.Waiting != 0 {
			w.wrong("a Session does not forget", fmt.Sprintf("%d held, %d wait", stats.Held, stats.Waiting))
		}
		w.mu.Lock()
		calls := w.calls[s]
		w.mu.Unlock()
		if n := stats.Granted + stats.Denied + stats.Canceled + stats.Failed; n != calls {
			w.wrong("a call is not counted once", fmt.Sprintf("%d results of %d calls", n, calls))
		}
	}
	if locks, _, _ := w.server.leftover(); locks != 0 {
		w.wrong("the server keeps locks that no caller holds", strconv.Itoa(locks))
	}
}

// closedWhileIdle checks that each Session closes its connections when no caller
// uses it, if that is in the plan. It would not do so while its key table knows a
// key.
func (w *world) closedWhileIdle() {
	if w.plan.IdleClose == 0 {
		return
	}
	w.advance(3 * w.plan.IdleClose)
	for _, s := range w.sessions() {
		if !s.Stats().IdleClosed {
			w.wrong("a Session that no caller uses stays connected", "")
		}
	}
}

// nothingLeft checks that all connections are closed.
func (w *world) nothingLeft() {
	if _, sessions, unclosed := w.server.leftover(); sessions != 0 || unclosed != 0 {
		w.wrong("connections are left after Close", fmt.Sprintf("%d at the server, %d not closed", sessions, unclosed))
	}
}
