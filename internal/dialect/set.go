package dialect

import "slices"

// inParts carries out b with exchange, of a database that cannot take all of a set of keys
// or none in one statement: it tries for each of them, and gives back in a second
// statement what it got of sets that are not complete.
//
// Keys of a set are in no other part of b.
func inParts(b *Batch, exchange func(*Batch) error) error {
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
		err = errNonsense
	}
	return err
}
