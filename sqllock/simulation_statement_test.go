package sqllock

import (
	"time"

	"github.com/latchkey-go/latchkey/internal/dialect"
)

// A simFate is what befalls a statement.
type simFate struct {
	Request, Run, Reply time.Duration // delays beside the network's own; the lease does not run while it runs
	End                 simEnd
}

type simEnd int

const (
	simAnswered  simEnd = iota
	simFails            // half of it is done, and the session lives
	simFull             // the same, for want of room
	simReplyLost        // it is done; then the connection breaks
	simSilence          // it is lost, and what follows on this connection
	simDeaf             // the same, and the driver is stuck until all has healed
	simKilled           // the server ends the session when it comes
)

var simEndNames = [...]string{"answered", "fails half-way", "lock table full", "reply lost", "silence", "stuck driver", "killed by a statement"}

func (e simEnd) String() string { return simEndNames[e] }

// roundTrip is one statement: effect is what it does, all of it or half.
func (s *simSession) roundTrip(effect func(all bool)) error {
	fate, black := s.nextFate()
	if black {
		<-s.aborted
		return errGone
	}
	if !s.travel(fate.Request) {
		return errGone
	}
	alive := s.carryOut(fate, effect)
	if !alive || fate.End == simReplyLost {
		s.travel(fate.Reply)
		return errGone
	}
	if !s.pause(fate.Run) || !s.travel(fate.Reply) {
		return errGone
	}
	switch fate.End {
	case simFails:
		return &dialect.Failure{Kind: dialect.Statement, Reason: "simulated"}
	case simFull:
		return &dialect.Failure{Kind: dialect.Full, Reason: "simulated"}
	}
	return nil
}

// nextFate is what befalls the statement about to be sent.
func (s *simSession) nextFate() (fate simFate, black bool) {
	f := s.server
	f.mu.Lock()
	defer f.mu.Unlock()
	if s.destroyed {
		f.world.wrong("a statement is sent on a connection that was destroyed", "")
	}
	if len(s.link.fates) > 0 {
		fate, s.link.fates = s.link.fates[0], s.link.fates[1:]
		f.world.count(fate.End.String())
	}
	f.world.count("statements")
	switch fate.End {
	case simDeaf:
		s.black, s.deaf = true, true
		f.stuck = append(f.stuck, s)
	case simSilence:
		s.black = true
	}
	return fate, s.black
}

// carryOut is the statement's arrival at the server. It reports whether the
// session is there.
func (s *simSession) carryOut(fate simFate, effect func(all bool)) bool {
	f := s.server
	f.mu.Lock()
	defer f.mu.Unlock()
	f.catchUpLocked()
	if fate.End == simKilled {
		f.killLocked(s)
	}
	if s.over {
		return false
	}
	effect(fate.End != simFails && fate.End != simFull)
	s.busy = simNow() + fate.Run
	s.idle = f.clockLocked(s.busy)
	return true
}

// Exchange implements dialect.Session.
func (s *simSession) Exchange(b *dialect.Batch) error {
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
		if s.blocks && len(b.Try)+len(b.Any) > 0 {
			s.server.tokens += simBlock
			block = s.server.tokens
		}
	})
	s.reserve(block, err)
	return err
}

// simBlock is few, so that some must be asked for.
const simBlock = 3

// reserve notes the block of tokens that ends with last, if any; after an error there is
// none for what may have been taken.
func (s *simSession) reserve(last int64, err error) {
	s.server.mu.Lock()
	defer s.server.mu.Unlock()
	switch {
	case err != nil:
		s.drawn, s.reserved = 0, 0
	case last > 0:
		s.drawn, s.reserved = last-simBlock, last
	}
}

// Room implements dialect.Session.
func (s *simSession) Room() int {
	if s.blocks {
		return simRoom
	}
	return 1 << 20
}

// simRoom is little, so that some must wait for the next statement.
const simRoom = 3

// Drawn implements dialect.Session.
func (s *simSession) ReservedToken() (dialect.Token, bool) {
	s.server.mu.Lock()
	defer s.server.mu.Unlock()
	if s.drawn == s.reserved {
		return dialect.Token{}, false
	}
	s.drawn++
	return dialect.Token{Number: s.drawn}, true
}

// take takes k for s if it is free. server.mu is held.
func (s *simSession) take(k dialect.Key) bool {
	owner := s.server.owners[k]
	if owner == s {
		s.server.world.wrong("one session takes a key twice", "")
	}
	if owner != nil {
		return false
	}
	for i, secret := range simSecrets {
		if key := secret.Key("three"); key.id() == k {
			if !s.secrets[key.secretCheck().dialect()] {
				s.server.world.wrong("a key made with a secret is taken by a session that does not use the secret", "")
			}
			if s.server.owners[simSecrets[1-i].Key("three").id()] != nil {
				s.server.world.wrong("two with different secrets are let in", "")
			}
		}
	}
	s.server.owners[k] = s
	s.server.world.granting(k, s)
	return true
}

func (s *simSession) takeOne(group []dialect.Key) int {
	for i, k := range group {
		if s.take(k) {
			return i
		}
	}
	return -1
}

// Held implements dialect.Session.
func (s *simSession) Held() (keys []dialect.Key, err error) {
	err = s.roundTrip(func(bool) {
		for k, owner := range s.server.owners {
			if owner == s {
				keys = append(keys, k)
			}
		}
	})
	return keys, err
}

// UseSecret implements dialect.Session in two statements, as databases do: one
// looks and takes, and one looks again. Each has its effect even if it fails.
func (s *simSession) UseSecret(c dialect.SecretCheck) (conflict bool, err error) {
	for range 2 {
		err := s.roundTrip(func(bool) {
			if conflict = s.server.conflicts(c); conflict {
				delete(s.secrets, c)
			} else {
				s.secrets[c] = true
			}
		})
		if err != nil || conflict {
			return conflict && err == nil, err
		}
	}
	return false, nil
}

// DropSecret implements dialect.Session.
func (s *simSession) DropSecret(c dialect.SecretCheck) error {
	return s.roundTrip(func(bool) { delete(s.secrets, c) })
}

// conflicts reports whether a session uses c's class with another secret. f.mu
// is held.
func (f *simServer) conflicts(c dialect.SecretCheck) bool {
	for s := range f.sessions {
		for other := range s.secrets {
			if other.Class == c.Class && other.Fingerprint != c.Fingerprint {
				return true
			}
		}
	}
	return false
}

// Token implements dialect.Session.
func (s *simSession) Token() (token dialect.Token, err error) {
	err = s.roundTrip(func(bool) {
		s.server.tokens++
		token.Number = s.server.tokens
	})
	s.server.mu.Lock()
	s.drawn = s.reserved // what comes after it is to be greater
	s.server.mu.Unlock()
	return token, err
}
