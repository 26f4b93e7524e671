package sqllock

import (
	"iter"

	"github.com/latchkey-go/latchkey/internal/dialect"
)

// keyMap finds an key state by its key. It has a map for each key space, since Go
// has a faster kind of map for plain integers.
type keyMap [2]map[int64]*keyState

func newKeyMap() (es keyMap) {
	for space := range es {
		es[space] = make(map[int64]*keyState)
	}
	return es
}

func (es *keyMap) of(k dialect.Key) *keyState { return es[k.Space][k.ID] }
func (es *keyMap) add(k *keyState)            { es[k.key.Space][k.key.ID] = k }
func (es *keyMap) remove(k *keyState)         { delete(es[k.key.Space], k.key.ID) }

func (es *keyMap) len() (n int) {
	for _, m := range es {
		n += len(m)
	}
	return n
}

// all is every key state; they may be removed meanwhile.
func (es *keyMap) all() iter.Seq[*keyState] {
	return func(yield func(*keyState) bool) {
		for _, m := range es {
			for _, k := range m {
				if !yield(k) {
					return
				}
			}
		}
	}
}
