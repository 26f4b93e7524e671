package worker_test

import (
	"context"
	"database/sql"
	"log/slog"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/latchkey-go/latchkey/internal/chaos/history"
	"github.com/latchkey-go/latchkey/internal/chaos/worker"
	"github.com/latchkey-go/latchkey/internal/lockertest"
	"github.com/latchkey-go/latchkey/internal/pgtest"
	"github.com/latchkey-go/latchkey/sqllock"
)

// take opens a Session and takes n keys.
func take(t *testing.T, db *sql.DB, n int) []*sqllock.Lock {
	t.Helper()
	s, err := sqllock.Open(t.Context(), db, sqllock.WithLogger(slog.New(slog.DiscardHandler)))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() })
	var locks []*sqllock.Lock
	for i := range n {
		lock, err := s.TryLock(t.Context(), worker.Key(i))
		if err != nil {
			t.Fatal(err)
		}
		locks = append(locks, lock)
	}
	return locks
}

// A holder that asks is told of a loss by the hook too. One that listens is
// told by the context only.
func TestObservedLock(t *testing.T) {
	db, err := sql.Open("pgx", pgtest.Database(t))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = db.Close() })
	locks := take(t, db, 4)
	var lost atomic.Int64
	observe := func(n int, listens bool) *worker.ObservedLock {
		return worker.Observe(locks[n], 1, int64(n+1), listens, func() { lost.Add(1) })
	}
	asks, listens, kept, looksNoMore := observe(0, false), observe(1, true), observe(2, true), observe(3, true)
	for _, w := range []*worker.ObservedLock{asks, listens, kept, looksNoMore} {
		if !w.Look() || w.Told() {
			t.Errorf("a lock that is held: told %t", w.Told())
		}
	}
	ended, end := context.WithCancel(t.Context())
	end()
	if kept.Listen(ended); kept.Told() {
		t.Error("told of a lock that is held")
	}
	if h := kept.GiveBack(); h.Unlock != history.OK || h.Told != 0 || h.Valid == 0 || kept.Lost() {
		t.Errorf("a lock that was given back: %+v", h)
	}
	if _, err := db.ExecContext(t.Context(), `SELECT pg_terminate_backend(pid) FROM pg_locks
		WHERE locktype = 'advisory' AND database = (SELECT oid FROM pg_database WHERE datname = current_database())`); err != nil {
		t.Fatal(err)
	}
	lockertest.Eventually(t, "a holder is told", asks.Told)
	if listens.Told() || lost.Load() != 1 {
		t.Errorf("one who listens was told before it did, or %d losses are counted", lost.Load())
	}
	listens.Listen(t.Context())
	asks.LookOn(ended, time.Minute)
	for _, w := range []*worker.ObservedLock{asks, listens} {
		if h := w.GiveBack(); !w.Lost() || h.Told == 0 || h.Valid > h.Told || h.Unlock != history.Lost {
			t.Errorf("a lock that was lost: %+v", h)
		}
	}
	if h := looksNoMore.GiveBack(); !looksNoMore.Lost() || h.Told != 0 || h.Unlock != history.Lost {
		t.Errorf("a lock whose loss its holder never saw: %+v", h)
	}
	if n := lost.Load(); n != 3 {
		t.Errorf("%d losses are counted, want 3", n)
	}
}

// One who holds on notes how far, and all that is noted can be told apart.
func TestLongNoted(t *testing.T) {
	p := start(t, "pgx")
	until(t, p, "grants", func(s worker.Status) bool { return s.Granted > 0 })
	lockertest.Eventually(t, "a lock is noted twice while it is held, and one that listens, and a write", func() bool {
		return notedAll(read(t, p))
	})
	if _, err := p.Drain(t.Context()); err != nil {
		t.Fatal(err)
	}
	calls, writes, listeners := map[int64]history.Moment{}, map[int64]bool{}, 0
	for _, e := range read(t, p) {
		switch {
		case e.Try != nil:
			if begin, ok := calls[e.Try.Call]; e.Try.Call == 0 || ok && begin != e.Try.Begin {
				t.Errorf("two calls have one number: %+v", *e.Try)
			}
			calls[e.Try.Call] = e.Try.Begin
		case e.Write != nil:
			if writes[e.Write.Number] || e.Write.Number == 0 {
				t.Errorf("two writes have one number: %+v", *e.Write)
			}
			writes[e.Write.Number] = true
		case e.Hold != nil && e.Hold.Listens:
			listeners++
		}
	}
	if len(calls) == 0 || len(writes) == 0 || listeners == 0 {
		t.Errorf("%d calls, %d writes, %d lines of who listens", len(calls), len(writes), listeners)
	}
}

// notedAll reports whether there is one at least of all that a process notes.
func notedAll(events []history.Event) bool {
	writes := slices.ContainsFunc(events, func(e history.Event) bool { return e.Write != nil })
	listens := slices.ContainsFunc(events, func(e history.Event) bool { return e.Hold != nil && e.Hold.Listens })
	return writes && listens && holdsOn(events)
}

// holdsOn reports whether a lock is in events twice before its end, and was valid
// longer the second time.
func holdsOn(events []history.Event) bool {
	first := map[int64]history.Moment{}
	for _, e := range events {
		if e.Hold == nil || e.Hold.Ended != 0 {
			continue
		}
		if valid, ok := first[e.Hold.Lock]; ok && e.Hold.Valid > valid {
			return true
		}
		first[e.Hold.Lock] = e.Hold.Valid
	}
	return false
}
