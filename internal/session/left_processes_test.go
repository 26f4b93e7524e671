package session

import (
	"slices"
	"testing"

	"github.com/latchkey-go/latchkey/internal/dialect"
)

// A terminator is a session of a server process that can end others.
type terminator struct {
	dialect.Session
	process dialect.Process
	there   []dialect.Process
}

func (t terminator) Process() dialect.Process { return t.process }

func (t terminator) Terminate([]dialect.Process) ([]dialect.Process, error) { return t.there, nil }

// leave makes s remember server processes with these PIDs.
func leave(s *Session, pids ...int64) {
	for _, pid := range pids {
		s.left.remember(&connection{session: terminator{process: dialect.Process{PID: pid}}})
	}
}

// A Session remembers a bounded number of server processes. It forgets the oldest.
func TestLeftProcessesAreBounded(t *testing.T) {
	t.Parallel()
	s := new(Session)
	for pid := range int64(maxLeft + 1) {
		leave(s, 1+pid)
		if n, want := len(s.left.processes), min(1+int(pid), maxLeft); n != want {
			t.Fatalf("%d processes after %d losses, want %d", n, 1+pid, want)
		}
	}
	if oldest := s.left.processes[0].PID; oldest != 2 {
		t.Errorf("the oldest is %d, want 2", oldest)
	}
}

// A process is forgotten once the server has ended it. One is kept that is still
// there, or that was left behind while the statement was under way.
func TestLeftProcessesAreEnded(t *testing.T) {
	t.Parallel()
	s := new(Session)
	leave(s, 1, 2)
	c := &connection{s: s, session: terminator{there: []dialect.Process{{PID: 2}}}}
	e := c.endLeft(true)
	if err := e.send(); err != nil {
		t.Fatal(err)
	}
	leave(s, 3)
	e.complete(nil)
	if got := s.left.processes; !slices.Equal(got, []dialect.Process{{PID: 2}, {PID: 3}}) {
		t.Errorf("%v are remembered, want 2 and 3", got)
	}
}
