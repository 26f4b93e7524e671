package dialect

// A Batch is what one round trip carries: requests and releases, and the
// responses to them. The session carries out the fields in their order.
//
// Invariant: an exclusive key is in one place of Release, Try, Looks and Stacks.
type Batch struct {
	Release []Key   // give these back
	Try     []Key   // then take each of these that is free
	Looks   []Look  // then take some keys of each list
	Stacks  []Stack // then take one key of each list, or none

	NotHeld bool  // response: the session did not hold all keys of Release
	Busy    []Key // response: the keys of Try that another session holds
}

// A Look takes the first Want free keys of Keys, or as many as are free. The
// keys are exclusive ones.
type Look struct {
	Keys []Key
	Want int
	Won  []int // response: the places in Keys of those that were taken, ascending
}

// Take notes that l has taken the key at place. It reports whether that is a
// response to l.
func (l *Look) Take(place int) bool {
	n := len(l.Won)
	if place < 0 || place >= len(l.Keys) || n == l.Want || n > 0 && place <= l.Won[n-1] {
		return false
	}
	l.Won = append(l.Won, place)
	return true
}

// A Stack takes the first free key of each level, in the order of the levels. If
// a level has none, the session has no key of the stack after that. The keys are
// exclusive ones.
type Stack struct {
	Levels [][]Key
	Won    []int // response, if all levels have a key: its place in each
	Failed int   // response: the level that had none; -1: all have one
}

// Reset empties b for its next use and keeps its memory.
func (b *Batch) Reset() {
	*b = Batch{Release: b.Release[:0], Try: b.Try[:0], Looks: b.Looks[:0], Stacks: b.Stacks[:0], Busy: b.Busy[:0]}
}

// Keys returns how many keys b carries.
func (b *Batch) Keys() int {
	n := len(b.Release) + len(b.Try)
	for i := range b.Looks {
		n += len(b.Looks[i].Keys)
	}
	for i := range b.Stacks {
		for _, keys := range b.Stacks[i].Levels {
			n += len(keys)
		}
	}
	return n
}
