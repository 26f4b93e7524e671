package lockdoctor

import (
	"context"
	"fmt"
	"runtime"
	"slices"
	"time"

	"github.com/latchkey-go/latchkey/internal/dialect/dbconn"
	"github.com/latchkey-go/latchkey/sqllock"
)

// The checks of Sessions that ask no database.

// canWatch is whether a Session can watch a socket on this system.
var canWatch = slices.Contains([]string{"linux", "darwin", "freebsd", "netbsd", "openbsd", "dragonfly"}, runtime.GOOS)

const noSession skip = "no Session was given (WithSession)"

// sessions checks that the Sessions are connected, and that their leases are
// renewed in time.
func sessions(_ context.Context, s *subject) (fine string, err error) {
	if len(s.sessions) == 0 {
		return "", noSession
	}
	var longest time.Duration
	idle := 0
	for _, session := range s.sessions {
		stats := session.Stats()
		longest = max(longest, stats.RoundTrip)
		switch on := session.Dialect(); {
		case on != "" && s.dialect != "" && on != s.dialect:
			s.wrong("a Session is on another kind of database than the one that is examined", "Pass Check the *sql.DB of the Session, or one on the same database.")
		case stats.IdleClosed:
			idle++
		case stats.Connections == 0:
			s.wrong("a Session has no connection, so its calls fail", "See the log of the Session: \"cannot connect\" has the reason.")
		case stats.LeaseRemaining > 0 && stats.LeaseRemaining < 2*stats.Heartbeat:
			s.warn(fmt.Sprintf("%v of a lease are left, less than two heartbeats", stats.LeaseRemaining.Round(time.Millisecond)),
				"Look for what keeps the server from responding, or the process from running: RoundTrip of Stats, CPU limits, the network.")
		}
	}
	fine = counted(len(s.sessions)-idle, "Session") + " connected"
	if idle > 0 {
		fine += fmt.Sprintf(", %d closed while idle", idle)
	}
	if longest > 0 { // a Session that has just begun has measured nothing
		fine += fmt.Sprintf(", a statement takes %v", max(longest.Round(10*time.Microsecond), 10*time.Microsecond))
	}
	return fine, nil
}

// socket checks that a Session notices a closed connection at once.
func socket(ctx context.Context, s *subject) (fine string, err error) {
	switch {
	case s.leaseTable:
		return "", skip("a Session with a lease table keeps no connection")
	case !canWatch:
		return "", skip("this system cannot watch a socket without reading from it")
	}
	watched, connected := true, false
	for _, session := range s.sessions {
		stats, connections := session.Stats(), session.Connections()
		connected = connected || stats.Connections > 0
		known := len(connections) > 0 && (connections[0].PID != 0 || s.dialect != sqllock.PostgreSQL) // or a lease table
		watched = watched && (stats.Watched || !known)
	}
	if !connected {
		conn, err := s.lend(ctx)
		if err != nil {
			return "", err
		}
		defer conn.Close()
		watched = watched && dbconn.SocketOf(conn, nil) != nil
	}
	if !watched {
		s.warn("the socket below the driver is not found, so a closed connection is noticed only by the next heartbeat",
			"Pass sqllock.WithSocket, which finds the socket of this driver.")
	}
	return "a Session notices a closed connection at once", nil
}
