package leasetable

import (
	"sync"

	"github.com/latchkey-go/latchkey/internal/dialect"
)

// reservedTokens is a block of tokens that an exchange has reserved. The zero
// value is empty.
//
// Invariant: while the session holds a lock, the block was reserved in the
// transaction that took the lock, or in a later one. So its tokens are greater
// than those of earlier holders and less than those of later ones.
type reservedTokens struct {
	mu    sync.Mutex // protects the fields below
	first dialect.Token
	used  int64
	size  int64
}

// reserve replaces the block by size tokens from first on.
func (t *reservedTokens) reserve(first dialect.Token, size int64) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.first, t.used, t.size = first, 0, size
}

// next returns the next token of the block, if there is one.
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
