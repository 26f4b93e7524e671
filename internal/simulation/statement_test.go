package simulation

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/binary"
	"time"

	"github.com/latchkey-go/latchkey/internal/dialect"
)

// A statementFault is what befalls a statement.
type statementFault struct {
	Request, Run, Reply time.Duration // delays beside the network's own; the lease does not run while it runs
	End                 outcome
}

type outcome int

const (
	answered          outcome = iota
	failsHalfWay              // half of it is done, and the session lives
	lockTableFull             // the same, for want of room
	replyLost                 // it is done; then the connection breaks
	silence                   // it is lost, and what follows on this connection
	driverStuck               // the same, and the driver is stuck until all has healed
	killedByStatement         // the server ends the session when it comes
)

var outcomeNames = [...]string{"answered", "fails half-way", "lock table full", "reply lost", "silence", "stuck driver", "killed by a statement"}

func (e outcome) String() string { return outcomeNames[e] }

// roundTrip is one statement: effect is what it does, all of it or half.
func (s *session) roundTrip(effect func(all bool)) error {
	fault, blackhole := s.nextFault()
	if blackhole {
		<-s.aborted
		return errGone
	}
	if !s.travel(fault.Request) {
		return errGone
	}
	alive := s.carryOut(fault, effect)
	if !alive || fault.End == replyLost {
		s.travel(fault.Reply)
		return errGone
	}
	if !s.pause(fault.Run) || !s.travel(fault.Reply) {
		return errGone
	}
	switch fault.End {
	case failsHalfWay:
		return &dialect.Failure{Kind: dialect.Statement, Reason: "simulated"}
	case lockTableFull:
		return &dialect.Failure{Kind: dialect.Full, Reason: "simulated"}
	}
	return nil
}

// nextFault is what befalls the statement about to be sent.
func (s *session) nextFault() (fault statementFault, blackhole bool) {
	srv := s.server
	srv.mu.Lock()
	defer srv.mu.Unlock()
	if s.destroyed {
		srv.world.wrong("a statement is sent on a connection that was destroyed", "")
	}
	if len(s.link.faults) > 0 {
		fault, s.link.faults = s.link.faults[0], s.link.faults[1:]
		srv.world.count(fault.End.String())
	}
	srv.world.count("statements")
	switch fault.End {
	case driverStuck:
		s.blackhole, s.stuck = true, true
		srv.stuck = append(srv.stuck, s)
	case silence:
		s.blackhole = true
	}
	return fault, s.blackhole
}

// carryOut is the statement's arrival at the server. It reports whether the
// session is there.
func (s *session) carryOut(fault statementFault, effect func(all bool)) bool {
	srv := s.server
	srv.mu.Lock()
	defer srv.mu.Unlock()
	srv.catchUpLocked()
	if fault.End == killedByStatement {
		srv.killLocked(s)
	}
	if s.over {
		return false
	}
	effect(fault.End != failsHalfWay && fault.End != lockTableFull)
	s.busy = now() + fault.Run
	s.idle = srv.clockLocked(s.busy)
	return true
}

// Exchange implements dialect.Session.
func (s *session) Exchange(b *dialect.Batch) error {
	block := int64(0)
	err := s.roundTrip(func(all bool) {
		do := func(keys int) int {
			if all {
				return keys
			}
			return (keys + 1) / 2
		}
		for _, k := range b.Release[:do(len(b.Release))] {
			if s.server.owners[k] == s {
				s.server.freeLocked(k)
			} else {
				b.NotHeld = append(b.NotHeld, k)
			}
		}
		for _, k := range b.Try[:do(len(b.Try))] {
			if !s.take(k) {
				b.Busy = append(b.Busy, k)
			}
		}
		for _, group := range b.Any[:do(len(b.Any))] {
			b.Won = append(b.Won, s.takeOne(group))
		}
		if s.reservesTokens && len(b.Try)+len(b.Any) > 0 {
			s.server.tokens += tokenBlock
			block = s.server.tokens
		}
	})
	s.reserve(block, err)
	return err
}

// tokenBlock is few, so that some must be asked for.
const tokenBlock = 3

// reserve notes the block of tokens that ends with last, if any; after an error there is
// none for what may have been taken.
func (s *session) reserve(last int64, err error) {
	s.server.mu.Lock()
	defer s.server.mu.Unlock()
	switch {
	case err != nil:
		s.drawn, s.reserved = 0, 0
	case last > 0:
		s.drawn, s.reserved = last-tokenBlock, last
	}
}

// Room implements dialect.Session.
func (s *session) Room() int {
	if s.reservesTokens {
		return smallRoom
	}
	return 1 << 20
}

// smallRoom is little, so that some must wait for the next statement.
const smallRoom = 3

// Drawn implements dialect.Session.
func (s *session) ReservedToken() (dialect.Token, bool) {
	s.server.mu.Lock()
	defer s.server.mu.Unlock()
	if s.drawn == s.reserved {
		return dialect.Token{}, false
	}
	s.drawn++
	return dialect.Token{Number: s.drawn}, true
}

// take takes k for s if it is free. server.mu is held.
func (s *session) take(k dialect.Key) bool {
	owner := s.server.owners[k]
	if owner == s {
		s.server.world.wrong("one session takes a key twice", "")
	}
	if owner != nil {
		return false
	}
	for i, secret := range secrets {
		if dialectKey(secret.Key("three")) == k {
			if !s.checks[secretCheckOf(i)] {
				s.server.world.wrong("a key made with a secret is taken without a claim", "")
			}
			if s.server.owners[dialectKey(secrets[1-i].Key("three"))] != nil {
				s.server.world.wrong("two with different secrets are let in", "")
			}
		}
	}
	s.server.owners[k] = s
	s.server.world.granting(k, s)
	return true
}

// secretCheckOf is what a session must have before it takes keys made with the
// ith secret.
func secretCheckOf(i int) dialect.SecretCheck {
	mac := hmac.New(sha256.New, []byte(secretTexts[i]))
	mac.Write([]byte("#"))
	return dialect.SecretCheckOf(string(namespace), max(binary.BigEndian.Uint32(mac.Sum(nil)), 1))
}

func (s *session) takeOne(group []dialect.Key) int {
	for i, k := range group {
		if s.take(k) {
			return i
		}
	}
	return -1
}

// Held implements dialect.Session.
func (s *session) Held() (keys []dialect.Key, err error) {
	err = s.roundTrip(func(bool) {
		for k, owner := range s.server.owners {
			if owner == s {
				keys = append(keys, k)
			}
		}
	})
	return keys, err
}

// Claim implements dialect.Session.
func (s *session) CheckSecrets(wanted, dropped []dialect.SecretCheck) (conflicts []bool, err error) {
	conflicts = make([]bool, len(wanted))
	err = s.roundTrip(func(all bool) {
		for _, c := range dropped {
			delete(s.checks, c)
		}
		for i, c := range wanted {
			if conflicts[i] = s.server.conflicts(c); all && !conflicts[i] {
				s.checks[c] = true
			}
		}
	})
	return conflicts, err
}

// conflicts reports whether a session has a claim of c's class and another secret.
// srv.mu is held.
func (srv *server) conflicts(c dialect.SecretCheck) bool {
	for s := range srv.sessions {
		for other := range s.checks {
			if other.Class == c.Class && other.Fingerprint != c.Fingerprint {
				return true
			}
		}
	}
	return false
}

// Token implements dialect.Session.
func (s *session) Token() (token dialect.Token, err error) {
	err = s.roundTrip(func(bool) {
		s.server.tokens++
		token.Number = s.server.tokens
	})
	s.server.mu.Lock()
	s.drawn = s.reserved // what comes after it is to be greater
	s.server.mu.Unlock()
	return token, err
}
