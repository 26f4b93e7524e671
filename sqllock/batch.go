package sqllock

import (
	"time"

	"github.com/latchkey-go/latchkey/internal/dialect"
)

// What one statement carries, and the figures that decide how much that is.

// A batch is the keys that one statement requests and releases, with the
// requests that wait for its response. A connection has one, and fills it again
// and again.
//
// Invariant: each key that the batch requests is in phase requested, and each
// key that it releases is in phase freeing. This holds from prepareBatchLocked
// until the batch is completed or the connection is lost.
type batch struct {
	statement dialect.Batch
	releases  []*keyState // beside statement.Release
	singles   []*keyState // beside statement.Try
	groups    []group     // beside statement.Any
	sets      []group     // beside statement.All
	eachParts []eachPart  // beside statement.Each
	probes    int         // keys beyond groups about which the statement asks
	settled   int         // how many of the locks that the batch may bring the response has decided
	crowded   bool        // it had no room for all that was queued

	// Of the statement under way, of whatever kind.
	underWay bool
	sent     time.Duration
	sentBoot time.Duration // the same by the clock that goes on while the system is suspended
	oldest   time.Duration // since when callers have waited

	eachStates []*keyState   // memory for eachPart.states
	eachKeys   []dialect.Key // memory for dialect.Group.Keys

	wakes []chan struct{} // the callers to wake once the batch is completed
}

// A group is what request wants together: one of keys or, in a set, all of
// them.
//
// Invariant: each of keys is in phase requested, as those of the batch are. They
// are the keys that this statement requests for request, which may want others
// too. Meanwhile request may be decided, because its caller has left.
type group struct {
	keys    []*keyState
	request *request
}

// An eachPart is a group of such a request, as the batch requests it. The parts
// of a request follow each other. A group that has reserved a key has no part.
//
// Invariant: each of states is in phase requested, as the keys of the batch
// are.
type eachPart struct {
	request *request
	group   int         // of the request
	states  []*keyState // the candidates that this statement tries
	all     bool        // they are all candidates of the group
}

// clear empties the batch for its next use.
func (b *batch) clear() {
	b.statement.Reset()
	b.settled = 0
	clear(b.releases)
	clear(b.singles)
	clear(b.groups)
	clear(b.sets)
	clear(b.eachParts)
	clear(b.eachStates)
	b.eachParts, b.eachStates, b.eachKeys, b.probes = b.eachParts[:0], b.eachStates[:0], b.eachKeys[:0], 0
	b.releases, b.singles, b.groups, b.sets = b.releases[:0], b.singles[:0], b.groups[:0], b.sets[:0]
}

// mayBring returns how many locks the batch may still bring.
func (b *batch) mayBring() int {
	n := len(b.singles) + len(b.groups) + len(b.eachParts) - b.settled
	for _, set := range b.sets {
		n += len(set.keys)
	}
	return n
}

// keys returns how many keys the batch requests and releases.
func (b *batch) keys() int {
	n := len(b.releases) + len(b.singles)
	for keys := range b.allGroups {
		n += len(keys)
	}
	return n
}

// wake wakes the callers that are decided. table.mu is free by now, since the
// first thing that each of them does is to lock it.
func (b *batch) wake() {
	for _, done := range b.wakes {
		done <- struct{}{}
	}
	clear(b.wakes)
	b.wakes = b.wakes[:0]
}

// failLocked tells the callers of the batch that there is no response yet. A
// lock that the batch brings later is released.
func (b *batch) failLocked(t *keyTable, err error) {
	if !b.underWay {
		return
	}
	for _, k := range b.releases {
		t.replyLocked(k, err)
		t.denyTriesLocked(k, err)
	}
	for _, k := range b.singles {
		t.denyTriesLocked(k, err)
	}
	for keys := range b.allGroups {
		for _, k := range keys {
			t.denyTriesLocked(k, err)
		}
	}
}

// cutEach takes the last parts off the batch again.
func (b *batch) cutEach(parts, states int) {
	clear(b.eachParts[parts:])
	clear(b.eachStates[states:])
	b.eachParts, b.eachStates = b.eachParts[:parts], b.eachStates[:states]
}

// keysOf returns the keys of states, in memory of the batch.
func (b *batch) keysOf(states []*keyState) []dialect.Key {
	from := len(b.eachKeys)
	for _, k := range states {
		b.eachKeys = append(b.eachKeys, k.key)
	}
	return b.eachKeys[from:len(b.eachKeys):len(b.eachKeys)]
}

// allGroups ranges over the keys that the batch requests together with others.
func (b *batch) allGroups(yield func([]*keyState) bool) {
	for _, groups := range [][]group{b.groups, b.sets} {
		for _, g := range groups {
			if !yield(g.keys) {
				return
			}
		}
	}
	for _, p := range b.eachParts {
		if !yield(p.states) {
			return
		}
	}
}

// abandonEach notes that no response comes for the requests of the batch.
func (b *batch) abandonEach() {
	for _, p := range b.eachParts {
		p.request.each.inBatch = false
	}
}

// A batchStats records how long statements and callers take. It decides how
// much the next statement carries. The goroutine of the connection alone uses
// it.
type batchStats struct {
	roundTrip time.Duration // of the last statement
	answered  int           // callers whom it answered
	keys      int           // that it requested and released
	perCaller time.Duration // for a caller to get its answer and come again, beside all others; smoothed
}

// observe notes that so many callers took so long to make their next requests.
func (stats *batchStats) observe(callers int, took time.Duration) {
	each := took / time.Duration(callers)
	if stats.perCaller == 0 {
		stats.perCaller = each
	}
	stats.perCaller += (each - stats.perCaller) / 8
}

// halves reports whether two statements are faster than one for so many
// callers. One is then under way while the callers of the other make their next
// requests.
//
// The network takes L there and back, the server's work takes S, and that of
// the callers takes C. One statement for all takes L + S + C. Two halves take
// 2L + S, or C if that is longer. So halves win where L < C. The round trip is
// L and some of S. This is so with a database nearby and hundreds of callers.
// Across a slow network one statement carries all.
func (stats *batchStats) halves(callers int) bool {
	return stats.roundTrip < time.Duration(callers)*stats.perCaller
}
