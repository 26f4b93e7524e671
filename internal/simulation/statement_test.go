package simulation

import (
	"time"

	"github.com/latchkey-go/latchkey/internal/dialect"
)

// A statementFault is what happens to one statement. The delays add to that of
// the network. While the server runs the statement, the session is not silent.
type statementFault struct {
	Request, Run, Reply time.Duration
	End                 outcome
}

// An outcome is how a statement ends.
type outcome int

const (
	answered          outcome = iota
	failsHalfWay              // the server does half of it, and the session lives
	lockTableFull             // the same, because the server has no room
	replyLost                 // the server does all of it, and then the connection breaks
	silence                   // it is lost, and so is every later one of the session
	driverStuck               // the same, and the driver does not return until heal
	killedByStatement         // the server ends the session when the statement arrives
)

var outcomeNames = [...]string{"answered", "fails half-way", "lock table full", "reply lost", "silence", "stuck driver", "killed by a statement"}

func (e outcome) String() string { return outcomeNames[e] }

// roundTrip sends one statement and waits for the response. effect does what the
// statement asks for, all of it or half. It is called with server.mu held.
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

// nextFault returns what happens to the statement that is about to be sent, and
// whether it never arrives.
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

// carryOut is the arrival of a statement at the server. It reports whether the
// session still exists.
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
