package simulation

import (
	"github.com/latchkey-go/latchkey/internal/dialect"
)

// ReservedToken implements dialect.Session.
func (s *session) ReservedToken() (dialect.Token, bool) {
	s.server.mu.Lock()
	defer s.server.mu.Unlock()
	if s.handedOut == s.reserved {
		return dialect.Token{}, false
	}
	s.handedOut++
	return dialect.Token{Number: s.handedOut}, true
}

// Token implements dialect.Session.
func (s *session) Token() (token dialect.Token, err error) {
	err = s.roundTrip(func(bool) {
		s.server.tokens++
		token.Number = s.server.tokens
	})
	s.server.mu.Lock()
	s.handedOut = s.reserved // those are smaller, and a later holder needs a greater one
	s.server.mu.Unlock()
	return token, err
}

// tokenBlock is so few tokens that some locks have to ask for theirs.
const tokenBlock = 3

// reserve notes the block of tokens that ends with last. It notes nothing if last
// is 0. After an error the session has no block, since a lock that it may have
// taken needs a later token.
func (s *session) reserve(last int64, err error) {
	s.server.mu.Lock()
	defer s.server.mu.Unlock()
	switch {
	case err != nil:
		s.handedOut, s.reserved = 0, 0
	case last > 0:
		s.handedOut, s.reserved = last-tokenBlock, last
	}
}
