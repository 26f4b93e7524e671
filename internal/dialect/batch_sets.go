package dialect

import "slices"

// InParts carries out b for a database that cannot take all keys of a set, or
// none, in one statement.
//
// It calls exchange once to try each key of the sets. If a set is not complete,
// it calls exchange again and gives back the keys that it got of the set.
//
// A key of a set must be in no other part of b.
func InParts(b *Batch, exchange func(*Batch) error) error {
	if len(b.All) == 0 {
		return exchange(b)
	}
	first := Batch{Release: b.Release, Try: slices.Concat(append([][]Key{b.Try}, b.All...)...), Any: b.Any}
	if err := exchange(&first); err != nil {
		return err
	}
	busy := make(map[Key]bool, len(first.Busy))
	for _, k := range first.Busy {
		busy[k] = true
	}
	b.NotHeld, b.Won = append(b.NotHeld, first.NotHeld...), append(b.Won, first.Won...)
	for _, k := range b.Try {
		if busy[k] {
			b.Busy = append(b.Busy, k)
		}
	}
	var second Batch
	for _, set := range b.All {
		missing := slices.IndexFunc(set, func(k Key) bool { return busy[k] })
		b.Missing = append(b.Missing, missing)
		for _, k := range set {
			if missing >= 0 && !busy[k] {
				second.Release = append(second.Release, k)
			}
		}
	}
	if len(second.Release) == 0 {
		return nil
	}
	err := exchange(&second)
	if err == nil && len(second.NotHeld) > 0 {
		err = ErrNonsense
	}
	return err
}
