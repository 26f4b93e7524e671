package sqllock

import (
	"iter"

	"github.com/latchkey-go/latchkey/internal/dialect"
)

// entries finds an entry by its key. It has a map for each key space, since Go
// has a faster kind of map for plain integers.
type entries [2]map[int64]*entry

func newEntries() (es entries) {
	for space := range es {
		es[space] = make(map[int64]*entry)
	}
	return es
}

func (es *entries) of(k dialect.Key) *entry { return es[k.Space][k.ID] }
func (es *entries) add(e *entry)            { es[e.key.Space][e.key.ID] = e }
func (es *entries) remove(e *entry)         { delete(es[e.key.Space], e.key.ID) }

func (es *entries) len() (n int) {
	for _, m := range es {
		n += len(m)
	}
	return n
}

// all is every entry; they may be removed meanwhile.
func (es *entries) all() iter.Seq[*entry] {
	return func(yield func(*entry) bool) {
		for _, m := range es {
			for _, e := range m {
				if !yield(e) {
					return
				}
			}
		}
	}
}
