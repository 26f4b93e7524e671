package leasetable

import (
	"slices"
	"strconv"
	"strings"

	"github.com/latchkey-go/latchkey/internal/dialect"
	"github.com/latchkey-go/latchkey/internal/dialect/postgres"
)

// candidates are the groups of keys from which a batch wants one key each: the
// first key that is free. A key of Try is a group of one.
type candidates struct {
	groups    []group
	contested bool // another session took the key that a group had chosen, at the same moment

	requested []place // of the statement in flight
}

// A group is a list of keys of which one is wanted.
type group struct {
	keys []dialect.Key
	won  int // index of the key that was taken, or -1
}

// A place is where a key is in candidates.
type place struct{ group, index int }

// newCandidates returns the groups of Try, followed by those of Any.
func newCandidates(b *dialect.Batch) *candidates {
	w := &candidates{groups: make([]group, 0, len(b.Try)+len(b.Any))}
	for i := range b.Try {
		w.groups = append(w.groups, group{keys: b.Try[i : i+1 : i+1], won: -1})
	}
	for _, g := range b.Any {
		w.groups = append(w.groups, group{keys: g, won: -1})
	}
	return w
}

// again reports whether a group has no key yet.
func (w *candidates) again() bool {
	return slices.ContainsFunc(w.groups, func(g group) bool { return g.won < 0 })
}

// missing returns the keys of the groups that have none yet.
func (w *candidates) missing() (keys []dialect.Key) {
	for _, g := range w.groups {
		if g.won < 0 {
			keys = append(keys, g.keys...)
		}
	}
	return keys
}

// any reports whether a group has a key.
func (w *candidates) any() bool {
	return slices.ContainsFunc(w.groups, func(g group) bool { return g.won >= 0 })
}

// unnest returns an SQL table of the keys for groups without one: group g, key
// space s and id k, in the order n from 1 on.
func (w *candidates) unnest() string {
	w.requested = w.requested[:0]
	var groups, spaces, ids strings.Builder
	for g := range w.groups {
		if w.groups[g].won >= 0 {
			continue
		}
		for i, k := range w.groups[g].keys {
			if len(w.requested) > 0 {
				groups.WriteByte(',')
				spaces.WriteByte(',')
				ids.WriteByte(',')
			}
			w.requested = append(w.requested, place{g, i})
			groups.WriteString(strconv.Itoa(g))
			spaces.WriteString(strconv.Itoa(int(k.Space)))
			ids.WriteString(strconv.FormatInt(k.ID, 10))
		}
	}
	return "unnest('{" + groups.String() + "}'::int[], '{" + spaces.String() + "}'::int[], '{" + ids.String() +
		"}'::bigint[]) WITH ORDINALITY AS u (g, s, k, n)"
}

// took notes which keys the groups had chosen, by n, and which of them were
// taken.
func (w *candidates) took(chosen, taken string) error {
	keys, err := postgres.ParseKeys(taken)
	if err != nil {
		return err
	}
	free := make(map[dialect.Key]bool, len(keys))
	for _, k := range keys {
		free[k] = true
	}
	w.contested = false
	for _, n := range splitInts(chosen) {
		if n < 1 || n > int64(len(w.requested)) {
			return dialect.ErrNonsense
		}
		c := w.requested[n-1]
		k := w.groups[c.group].keys[c.index]
		if !free[k] { // taken by another session, or by another group
			w.contested = w.contested || len(w.groups[c.group].keys) > 1
			continue
		}
		w.groups[c.group].won = c.index
		delete(free, k)
	}
	if len(free) > 0 {
		return dialect.ErrNonsense
	}
	return nil
}

// respond fills in the responses of b.
func (w *candidates) respond(b *dialect.Batch) {
	for i := range b.Try {
		if w.groups[i].won < 0 {
			b.Busy = append(b.Busy, b.Try[i])
		}
	}
	for _, g := range w.groups[len(b.Try):] {
		b.Won = append(b.Won, g.won)
	}
}

// notGiven notes which keys of b.Release were not among those given back.
func notGiven(b *dialect.Batch, given []dialect.Key) {
	if len(given) == len(b.Release) {
		return
	}
	was := make(map[dialect.Key]bool, len(given))
	for _, k := range given {
		was[k] = true
	}
	for _, k := range b.Release {
		if !was[k] {
			b.NotHeld = append(b.NotHeld, k)
		}
	}
}
