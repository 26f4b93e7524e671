package leasetable

import (
	"sync"

	"github.com/latchkey-go/latchkey/internal/dialect"
)

// tokens is a block of tokens that an exchange has reserved. The zero value is
// empty.
//
// Invariant: while a session holds a lock, its block was reserved in the
// transaction that took that lock, or in a later one of the session: greater than any token
// of those who held it before, less than any of those who will.
type reservedTokens struct {
	mu    sync.Mutex
	first dialect.Token
	used  int64
	size  int64
}

// reserve replaces the block by that of size tokens from first on.
func (t *reservedTokens) reserve(first dialect.Token, size int64) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.first, t.used, t.size = first, 0, size
}

func (t *reservedTokens) next() (dialect.Token, bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.used == t.size {
		return dialect.Token{}, false
	}
	token := t.first
	token.Number += t.used
	t.used++
	return token, true
}
