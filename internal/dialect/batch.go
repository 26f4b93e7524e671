package dialect

// A Batch is what one round trip carries: requests and releases, and the
// responses to them. The session carries out the fields in their order.
//
// Invariant: after Exchange without an error, Won has an element for each of
// Any, and Missing has one for each of All. An exclusive key is in one place of
// Try, Any, All and the Keys of Each.
type Batch struct {
	Release []Key   // give these back
	Try     []Key   // then take each of these that is free
	Any     [][]Key // then take the first free key of each group, whose keys share one Space
	All     [][]Key // then take all keys of each set, or none
	Each    []Group // then take one key of each group of a request, or none

	NotHeld []Key // response: the keys of Release that the session did not hold
	Busy    []Key // response: the keys of Try that another session holds
	Won     []int // response: for each of Any the index of the key that was taken, or -1
	Missing []int // response: for each of All the index of the first key that was not free, or -1
}

// Reset empties b for its next use and keeps its memory.
func (b *Batch) Reset() {
	*b = Batch{
		Release: b.Release[:0], Try: b.Try[:0], Any: b.Any[:0], All: b.All[:0], Each: b.Each[:0],
		NotHeld: b.NotHeld[:0], Busy: b.Busy[:0], Won: b.Won[:0], Missing: b.Missing[:0],
	}
}
