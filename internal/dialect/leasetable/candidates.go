package leasetable

import (
	"slices"
	"strconv"
	"strings"

	"github.com/latchkey-go/latchkey/internal/dialect"
	"github.com/latchkey-go/latchkey/internal/dialect/postgres"
)

// candidates are the groups of keys from which a batch wants some each: the
// first keys that are free. A key of Try is a group of one.
type candidates struct {
	groups    []group
	contested bool // another session took a key that a group had chosen, at the same moment

	requested []place // of the statement in flight
}

// A group is a list of keys of which some are wanted.
type group struct {
	keys []dialect.Key
	want int
	won  []int // places of the keys that were taken
}

// open reports whether g has fewer keys than it wants.
func (g *group) open() bool { return len(g.won) < g.want }

// A place is where a key is in candidates.
type place struct{ group, index int }

// newCandidates returns the groups of Try, followed by those of Looks.
func newCandidates(b *dialect.Batch) *candidates {
	w := &candidates{groups: make([]group, 0, len(b.Try)+len(b.Looks))}
	for i := range b.Try {
		w.groups = append(w.groups, group{keys: b.Try[i : i+1 : i+1], want: 1})
	}
	for _, l := range b.Looks {
		w.groups = append(w.groups, group{keys: l.Keys, want: l.Want, won: l.Won[:0]})
	}
	return w
}

// again reports whether a group wants more keys.
func (w *candidates) again() bool {
	return slices.ContainsFunc(w.groups, func(g group) bool { return g.open() })
}

// missing returns the keys that are not taken of the groups that want more.
func (w *candidates) missing() (keys []dialect.Key) {
	for g := range w.groups {
		keys = append(keys, w.groups[g].left()...)
	}
	return keys
}

// left returns the keys of g that are not taken, if g wants more.
func (g *group) left() (keys []dialect.Key) {
	if !g.open() {
		return nil
	}
	for i, k := range g.keys {
		if !slices.Contains(g.won, i) {
			keys = append(keys, k)
		}
	}
	return keys
}

// any reports whether a group has a key.
func (w *candidates) any() bool {
	return slices.ContainsFunc(w.groups, func(g group) bool { return len(g.won) > 0 })
}

// unnest returns an SQL table of the keys for groups that want more: group g,
// how many it wants, key space s and id k, in the order n from 1 on.
func (w *candidates) unnest() string {
	w.requested = w.requested[:0]
	var groups, wants, spaces, ids []string
	for g := range w.groups {
		of := &w.groups[g]
		if !of.open() {
			continue
		}
		for i, k := range of.keys {
			if slices.Contains(of.won, i) {
				continue
			}
			w.requested = append(w.requested, place{g, i})
			groups, wants = append(groups, strconv.Itoa(g)), append(wants, strconv.Itoa(of.want-len(of.won)))
			spaces, ids = append(spaces, strconv.Itoa(int(k.Space))), append(ids, strconv.FormatInt(k.ID, 10))
		}
	}
	array := func(items []string) string { return "'{" + strings.Join(items, ",") + "}'" }
	return "unnest(" + array(groups) + "::int[], " + array(wants) + "::int[], " + array(spaces) + "::int[], " + array(ids) +
		"::bigint[]) WITH ORDINALITY AS u (g, want, s, k, n)"
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
		w.groups[c.group].won = append(w.groups[c.group].won, c.index)
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
		if w.groups[i].open() {
			b.Busy = append(b.Busy, b.Try[i])
		}
	}
	for i := range b.Looks {
		won := w.groups[len(b.Try)+i].won
		slices.Sort(won)
		b.Looks[i].Won = won
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
