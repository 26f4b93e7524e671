package sqllock

import (
	"math/bits"
	"sync/atomic"
)

// A numberSet maps numbers to groups. Its memory is reused.
type numberSet struct {
	slots []numberOf
	shift int
}

// A numberOf is a number and the group it is in, from 1; 0 is an empty slot.
type numberOf struct {
	number int64
	group  int
}

// reset empties the set, and makes room for n numbers.
func (s *numberSet) reset(n int) {
	size := 1 << bits.Len(uint(2*n))
	if size > cap(s.slots) {
		s.slots = make([]numberOf, size)
	}
	s.slots = s.slots[:size]
	clear(s.slots)
	s.shift = 64 - bits.Len(uint(size-1))
}

// add adds number as one of group g. It returns the group that it was in
// before, or g.
func (s *numberSet) add(number int64, g int) int {
	const golden = 0x9e3779b97f4a7c15 // 2⁶⁴ divided by the golden ratio
	for i := uint64(number) * golden >> s.shift; ; i++ {
		slot := &s.slots[i&uint64(len(s.slots)-1)]
		switch {
		case slot.group == 0:
			*slot = numberOf{number, g + 1}
			return g
		case slot.number == number:
			return slot.group - 1
		}
	}
}

// narrowGroup is up to how many keys of a group are candidates at once. A group
// of more keys is wide.
const narrowGroup = 8

// checkedGroups remembers a few wide groups that were checked, by the memory
// they are in. Its methods are safe for concurrent use.
type checkedGroups struct {
	next   atomic.Uint32
	groups [8]atomic.Pointer[checkedGroup]
}

// A checkedGroup is a slice of keys.
type checkedGroup struct {
	first  *Key
	length int
}

// has reports whether keys is remembered.
func (c *checkedGroups) has(keys []Key) bool {
	if len(keys) <= narrowGroup {
		return false
	}
	for i := range c.groups {
		if g := c.groups[i].Load(); g != nil && g.first == &keys[0] && g.length == len(keys) {
			return true
		}
	}
	return false
}

// add remembers keys, if there are many.
func (c *checkedGroups) add(keys []Key) {
	if len(keys) > narrowGroup {
		c.groups[c.next.Add(1)%uint32(len(c.groups))].Store(&checkedGroup{&keys[0], len(keys)})
	}
}
