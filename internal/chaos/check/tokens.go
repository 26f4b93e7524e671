package check

import (
	"cmp"
	"errors"
	"fmt"
	"slices"

	"github.com/latchkey-go/latchkey/internal/chaos/history"
)

// A Stored is what one fenced transaction left in the database.
type Stored struct {
	Key      int64
	N        int64 // the order of the key's commits, from a row that each of them counts up
	Timeline int64
	LSN      int64
	Lock     int64 // the holder's
	Number   int64 // the Write's
}

// What Tokens and Writes match.
var (
	ErrTokenFell    = errors.New("check: an older holder wrote after a later one")
	ErrTokenShared  = errors.New("check: two locks of a key have one token")
	ErrTokenChanged = errors.New("check: a lock has two tokens")
	ErrOrder        = errors.New("check: two writes of a key have one place in the order")
	ErrWriteMissing = errors.New("check: a write that was acknowledged is not stored")
	ErrWriteStored  = errors.New("check: a write that was refused is stored")
)

type token struct{ timeline, lsn int64 }

func (t token) compare(u token) int {
	return cmp.Or(cmp.Compare(t.timeline, u.timeline), cmp.Compare(t.lsn, u.lsn))
}

// Tokens checks three rules and reports the first write that breaks each:
//
//   - The tokens of a key never fall in the order of the commits.
//   - Each lock has one token.
//   - No two locks of a key have the same token.
func Tokens(rows []Stored) error { return tokens(rows, false) }

// Fenced is Tokens and Writes together. With mayRise a lock may have a later
// token than before, as those of a lease table after a restart of the server.
func Fenced(events []history.Event, rows []Stored, mayRise bool) error {
	return errors.Join(tokens(rows, mayRise), Writes(events, rows))
}

func tokens(rows []Stored, mayRise bool) error {
	rows = slices.SortedFunc(slices.Values(rows), func(a, b Stored) int {
		return cmp.Or(cmp.Compare(a.Key, b.Key), cmp.Compare(a.N, b.N))
	})
	type owned struct {
		key int64
		token
	}
	owners := map[owned]int64{}
	drawn := map[int64]token{}
	var found findings
	for i, row := range rows {
		t := token{row.Timeline, row.LSN}
		if i > 0 && rows[i-1].Key == row.Key {
			before := rows[i-1]
			if before.N == row.N {
				found.add(ErrOrder, row)
			}
			if t.compare(token{before.Timeline, before.LSN}) < 0 {
				found.add(ErrTokenFell, row)
			}
		}
		if first, ok := drawn[row.Lock]; ok && first != t && !(mayRise && t.compare(first) > 0) {
			found.add(ErrTokenChanged, row)
		}
		if owner, ok := owners[owned{row.Key, t}]; ok && owner != row.Lock {
			found.add(ErrTokenShared, row)
		}
		drawn[row.Lock], owners[owned{row.Key, t}] = t, row.Lock
	}
	return found.err()
}

// Writes checks that each acknowledged write is stored, and that no refused one
// is, whether fenced or lost. Any other result proves nothing. Writes of a lock
// that have the same number, such as 0, are counted.
//
// A failover that may lose committed writes breaks the first rule, as it may.
func Writes(events []history.Event, rows []Stored) error {
	type write struct{ key, lock, number int64 }
	type counts struct{ ok, refused, unknown int }
	wrote := map[write]counts{}
	for _, e := range events {
		if e.Write == nil {
			continue
		}
		w := write{e.Write.Key, e.Write.Lock, e.Write.Number}
		c := wrote[w]
		switch e.Write.Result {
		case history.OK:
			c.ok++
		case history.Fenced, history.Lost:
			c.refused++
		default:
			c.unknown++
		}
		wrote[w] = c
	}
	stored := map[write]int{}
	for _, row := range rows {
		stored[write{row.Key, row.Lock, row.Number}]++
	}
	var found findings
	for w, c := range wrote {
		n := stored[w]
		if n < c.ok {
			found.add(ErrWriteMissing, w)
		}
		// A killed process may have committed a write that it could not note.
		if c.refused > 0 && n > c.ok+c.unknown {
			found.add(ErrWriteStored, w)
		}
	}
	return found.err()
}

// findings are how often each rule was broken, and where first.
type findings struct {
	kinds []error
	count map[error]int
	first map[error]any
}

func (f *findings) add(kind error, where any) {
	if f.count == nil {
		f.count, f.first = map[error]int{}, map[error]any{}
	}
	if f.count[kind] == 0 {
		f.kinds, f.first[kind] = append(f.kinds, kind), where
	}
	f.count[kind]++
}

func (f *findings) err() error {
	errs := make([]error, 0, len(f.kinds))
	for _, kind := range f.kinds {
		errs = append(errs, fmt.Errorf("%w: %d times, first %+v", kind, f.count[kind], f.first[kind]))
	}
	return errors.Join(errs...)
}
