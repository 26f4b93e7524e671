package leasetable

import (
	"cmp"
	"slices"
	"strconv"
	"strings"

	"github.com/latchkey-go/latchkey/internal/dialect"
)

// A taking is what a batch is to take: each key of Try as a look of its own, and
// then its Looks.
type taking []dialect.Look

// newTaking returns what b takes. Nothing of it is taken yet.
func newTaking(b *dialect.Batch) taking {
	t := make(taking, 0, len(b.Try)+len(b.Looks))
	for i := range b.Try {
		t = append(t, dialect.Look{Keys: b.Try[i : i+1 : i+1], Want: 1})
	}
	for _, l := range b.Looks {
		t = append(t, dialect.Look{Keys: l.Keys, Want: l.Want, Won: l.Won[:0]})
	}
	return t
}

// missing returns the keys that are not taken of the looks that want more.
func (t taking) missing() (keys []dialect.Key) {
	t.each(func(_ *dialect.Look, _ int, k dialect.Key) { keys = append(keys, k) })
	return keys
}

// each calls f for each key that is not taken of the looks that want more. f may
// note that it is taken now.
func (t taking) each(f func(l *dialect.Look, place int, k dialect.Key)) {
	for i := range t {
		l := &t[i]
		before := l.Won
		for place, k := range l.Keys {
			if len(l.Won) < l.Want && !slices.Contains(before, place) {
				f(l, place, k)
			}
		}
	}
}

// choose returns the first keys of each look that wants more, as many as it wants,
// sorted: all sessions insert in one order. It passes over those of not.
func (t taking) choose(not map[dialect.Key]bool) (keys []dialect.Key) {
	chosen := make(map[dialect.Key]bool)
	for i := range t {
		want := t[i].Want - len(t[i].Won)
		t[i : i+1].each(func(_ *dialect.Look, _ int, k dialect.Key) {
			if want > 0 && !not[k] && !chosen[k] {
				chosen[k] = true
				keys = append(keys, k)
				want--
			}
		})
	}
	slices.SortFunc(keys, func(a, b dialect.Key) int {
		return cmp.Or(cmp.Compare(a.Space, b.Space), cmp.Compare(a.ID, b.ID))
	})
	return keys
}

// any reports whether a look has a key.
func (t taking) any() bool {
	return slices.ContainsFunc(t, func(l dialect.Look) bool { return len(l.Won) > 0 })
}

// took notes that the session has taken keys. A key goes to the first look that
// wants it. Each look has chosen the first keys that were free, so each key finds
// a look.
func (t taking) took(keys []dialect.Key) error {
	left := make(map[dialect.Key]bool, len(keys))
	for _, k := range keys {
		left[k] = true
	}
	t.each(func(l *dialect.Look, place int, k dialect.Key) {
		if left[k] {
			l.Won = append(l.Won, place)
			delete(left, k)
		}
	})
	if len(left) > 0 {
		return dialect.ErrNonsense
	}
	return nil
}

// respond fills in the responses of b.
func (t taking) respond(b *dialect.Batch) {
	for i, k := range b.Try {
		if len(t[i].Won) == 0 {
			b.Busy = append(b.Busy, k)
		}
	}
	for i := range b.Looks {
		b.Looks[i].Won = t[len(b.Try)+i].Won
		slices.Sort(b.Looks[i].Won)
	}
}

// unnest returns an SQL table of the keys of missing: look g, how many more it
// wants, key space s and id k, in the order n from 1 on. unnest of several arrays
// is PostgreSQL's own without its schema, and only so.
func (t taking) unnest() string {
	var looks, wants, spaces, ids []string
	for g := range t {
		want := strconv.Itoa(t[g].Want - len(t[g].Won))
		t[g : g+1].each(func(_ *dialect.Look, _ int, k dialect.Key) {
			looks, wants = append(looks, strconv.Itoa(g)), append(wants, want)
			spaces, ids = append(spaces, strconv.Itoa(int(k.Space))), append(ids, strconv.FormatInt(k.ID, 10))
		})
	}
	return "unnest(" + array(looks) + "::int[], " + array(wants) + "::int[], " + array(spaces) + "::int[], " + array(ids) +
		"::bigint[]) WITH ORDINALITY AS u (g, want, s, k, n)"
}

// array returns an SQL literal for an array of numbers.
func array(items []string) string { return "'{" + strings.Join(items, ",") + "}'" }

// unnestKeys returns an SQL table of keys: key space s and id k.
func unnestKeys(keys []dialect.Key) string {
	spaces, ids := make([]string, len(keys)), make([]string, len(keys))
	for i, k := range keys {
		spaces[i], ids[i] = strconv.Itoa(int(k.Space)), strconv.FormatInt(k.ID, 10)
	}
	return "unnest(" + array(spaces) + "::int[], " + array(ids) + "::bigint[]) AS u (s, k)"
}
