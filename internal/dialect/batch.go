package dialect

import "slices"

// A Batch is what one round trip carries, and its answers.
type Batch struct {
	Release []Key   // give these back
	Try     []Key   // then take each of these that is free; these two may be readers' locks, where Traits says so
	Any     [][]Key // then, of each of these groups, take the first that is free; a group's keys share one Space
	All     [][]Key // then, of each of these sets, take all or none: from the first on, until one is not free

	NotHeld []Key // answer: of Release, what the session did not hold
	Busy    []Key // answer: of Try, what another session holds
	Won     []int // answer: for each of Any the index of what was taken, or -1
	Missing []int // answer: for each of All the index of the first that was not free, or -1: all are taken
}

// Reset empties b for its next use and keeps its memory.
func (b *Batch) Reset() {
	*b = Batch{
		Release: b.Release[:0], Try: b.Try[:0], Any: b.Any[:0], All: b.All[:0],
		NotHeld: b.NotHeld[:0], Busy: b.Busy[:0], Won: b.Won[:0], Missing: b.Missing[:0],
	}
}

// inParts carries out b with exchange, of a database that cannot take all of a set of keys
// or none in one statement: it tries for each of them, and gives back in a second
// statement what it got of sets that are not complete.
//
// Keys of a set are in no other part of b.
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
