package sqllock

import "github.com/latchkey-go/latchkey/internal/dialect"

// fakeLocks is the lock table of a fakeServer. The mu of the server protects it.
//
// Invariant: no session takes a key that it holds already. PostgreSQL would grant
// it, so the engine must not request it. Methods panic if it does.
type fakeLocks struct {
	owners  map[dialect.Key]*fakeSession
	readers map[dialect.Key]map[*fakeSession]bool
}

func newFakeLocks() fakeLocks {
	return fakeLocks{make(map[dialect.Key]*fakeSession), make(map[dialect.Key]map[*fakeSession]bool)}
}

func (f fakeLocks) len() int { return len(f.owners) + len(f.readers) }

// take takes k for s if k is free, and reports whether it was.
func (f fakeLocks) take(s *fakeSession, k dialect.Key) bool {
	key := k.Exclusive()
	switch {
	case f.owners[key] == s || f.readers[key][s]:
		panic("the engine takes a key twice on one session")
	case f.owners[key] != nil:
		return false
	case !k.IsShared() && len(f.readers[key]) > 0:
		return false
	case !k.IsShared():
		f.owners[key] = s
	case f.readers[key] == nil:
		f.readers[key] = map[*fakeSession]bool{s: true}
	default:
		f.readers[key][s] = true
	}
	return true
}

// takeOne takes the first free key of group. It returns the index, or -1.
func (f fakeLocks) takeOne(s *fakeSession, group []dialect.Key) (won int) {
	for i, k := range group {
		if f.take(s, k) {
			return i
		}
	}
	return -1
}

// takeAll takes all keys of set or none. It returns the index of the first key that
// was not free, or -1.
func (f fakeLocks) takeAll(s *fakeSession, set []dialect.Key) (missing int) {
	for i, k := range set {
		if !f.take(s, k) {
			for _, taken := range set[:i] {
				f.release(s, taken)
			}
			return i
		}
	}
	return -1
}

// takeEach takes the first free key of each group of request, or none. No test
// has keys beyond a group.
func (f fakeLocks) takeEach(s *fakeSession, request []dialect.Group) {
	for i := range request {
		request[i].Won = dialect.GivenUp
	}
	for i := range request {
		g := &request[i]
		if g.Won = f.takeOne(s, g.Keys); g.Won < 0 {
			for _, taken := range request[:i] {
				f.release(s, taken.Keys[taken.Won])
			}
			dialect.GiveUp(request[:i])
			return
		}
	}
}

// release gives k back and reports whether s held it.
func (f fakeLocks) release(s *fakeSession, k dialect.Key) bool {
	key := k.Exclusive()
	if k.IsShared() {
		had := f.readers[key][s]
		delete(f.readers[key], s)
		if len(f.readers[key]) == 0 {
			delete(f.readers, key)
		}
		return had
	}
	had := f.owners[key] == s
	if had {
		delete(f.owners, key)
	}
	return had
}

// of returns the keys that s holds.
func (f fakeLocks) of(s *fakeSession) (keys []dialect.Key) {
	for k, owner := range f.owners {
		if owner == s {
			keys = append(keys, k)
		}
	}
	for k, readers := range f.readers {
		if readers[s] {
			keys = append(keys, k.Shared())
		}
	}
	return keys
}
