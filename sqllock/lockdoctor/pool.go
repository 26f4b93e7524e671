package lockdoctor

import (
	"context"
	"fmt"
)

// The checks of the pool and of the driver below it.

// poolSize checks that the pool may open the connections that a Session needs.
// How long its connections may live (SetConnMaxLifetime) cannot be read. A
// Session does not depend on it.
func poolSize(_ context.Context, s *subject) Result {
	most := s.pool.MaxOpenConnections
	needed := 2
	if s.needsOneConnection() {
		needed = 1
	}
	switch {
	case most == 0:
		return passed("the pool may open any number of connections, %s", inUse(s.pool.InUse))
	case most < needed:
		return wrong("the pool may open one connection only, and a Session needs a second one for a moment to prove that locks exclude",
			"Call db.SetMaxOpenConns(5) for the pool of the locks.")
	case s.pool.InUse >= most:
		return warning(fmt.Sprintf("all %d connections of the pool are in use, so a Session could not reconnect", most),
			"Give the Session a pool of its own with SetMaxOpenConns(5), which no request uses.")
	}
	return passed("the pool may open %d connections, %s", most, inUse(s.pool.InUse))
}

// inUse returns "1 is in use" or "n are in use".
func inUse(n int) string {
	if n == 1 {
		return "1 is in use"
	}
	return fmt.Sprintf("%d are in use", n)
}

const noProof = "the proof needs two free connections of the pool"

// lacksTwo reports whether the pool has fewer than two free connections, which a
// Session needs that begins. The Sessions that are open may use the others.
func (s *subject) lacksTwo() bool {
	most := s.pool.MaxOpenConnections
	return most > 0 && most-s.pool.InUse < 2
}
