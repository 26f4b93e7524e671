package leasetable

import (
	"slices"
	"strconv"
	"strings"

	"github.com/latchkey-go/latchkey/internal/dialect"
	"github.com/latchkey-go/latchkey/internal/dialect/postgres"
)

// candidates is what a batch wants to take, as groups of which each wants its first
// key that is free: a key of Try is a group of one.
type candidates struct {
	groups    []group
	contested bool // a group lost what it had chosen to another at the same moment

	asked []place // in the statement under way, by their places
}

type group struct {
	keys []dialect.Key
	won  int // index of what was taken, or -1
}

type place struct{ group, index int }

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

// again reports whether a group is still without.
func (w *candidates) again() bool {
	return slices.ContainsFunc(w.groups, func(g group) bool { return g.won < 0 })
}

// missing is the keys of the groups that are still without.
func (w *candidates) missing() (keys []dialect.Key) {
	for _, g := range w.groups {
		if g.won < 0 {
			keys = append(keys, g.keys...)
		}
	}
	return keys
}

// any reports whether a group has one.
func (w *candidates) any() bool {
	return slices.ContainsFunc(w.groups, func(g group) bool { return g.won >= 0 })
}

// unnest is the table of the keys that groups without one want: group g, key space s,
// id k, in order n from 1 on.
func (w *candidates) unnest() string {
	w.asked = w.asked[:0]
	var groups, spaces, ids strings.Builder
	for g := range w.groups {
		if w.groups[g].won >= 0 {
			continue
		}
		for i, k := range w.groups[g].keys {
			if len(w.asked) > 0 {
				groups.WriteByte(',')
				spaces.WriteByte(',')
				ids.WriteByte(',')
			}
			w.asked = append(w.asked, place{g, i})
			groups.WriteString(strconv.Itoa(g))
			spaces.WriteString(strconv.Itoa(int(k.Space)))
			ids.WriteString(strconv.FormatInt(k.ID, 10))
		}
	}
	return "unnest('{" + groups.String() + "}'::int[], '{" + spaces.String() + "}'::int[], '{" + ids.String() +
		"}'::bigint[]) WITH ORDINALITY AS u (g, s, k, n)"
}

// took notes which keys the groups had chosen, by n, and which were taken.
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
		if n < 1 || n > int64(len(w.asked)) {
			return dialect.ErrNonsense
		}
		c := w.asked[n-1]
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

// answer fills in b's.
func (w *candidates) answer(b *dialect.Batch) {
	for i := range b.Try {
		if w.groups[i].won < 0 {
			b.Busy = append(b.Busy, b.Try[i])
		}
	}
	for _, g := range w.groups[len(b.Try):] {
		b.Won = append(b.Won, g.won)
	}
}

// notGiven notes which of b.Release were not among those given back.
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

// unnestKeys is the table of keys: key space s, id k. An unnest of several
// arrays is PostgreSQL's own without its schema, and only so.
func unnestKeys(keys []dialect.Key) string {
	spaces, ids := make([]string, len(keys)), make([]string, len(keys))
	for i, k := range keys {
		spaces[i], ids[i] = strconv.Itoa(int(k.Space)), strconv.FormatInt(k.ID, 10)
	}
	return "unnest('{" + strings.Join(spaces, ",") + "}'::int[], '{" + strings.Join(ids, ",") + "}'::bigint[]) AS u (s, k)"
}

// splitInts reads a list of numbers; -1 for what is none.
func splitInts(list string) (numbers []int64) {
	if list == "" {
		return nil
	}
	for item := range strings.SplitSeq(list, ",") {
		n, err := strconv.ParseInt(item, 10, 64)
		if err != nil {
			n = -1
		}
		numbers = append(numbers, n)
	}
	return numbers
}
