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

const noSession = "no Session was given (WithSession)"

// sessions checks that the Sessions are connected, and that their leases are
// renewed in time.
func sessions(_ context.Context, s *subject) Result {
	if len(s.sessions) == 0 {
		return skipped(noSession)
	}
	var findings []Result
	var longest time.Duration
	idle := 0
	for _, session := range s.sessions {
		stats := session.Stats()
		longest = max(longest, stats.RoundTrip)
		switch on := session.Dialect(); {
		case on != "" && s.dialect != "" && on != s.dialect:
			findings = append(findings, wrong("a Session is on another kind of database than the one that is examined", "Pass Check the *sql.DB of the Session, or one on the same database."))
		case stats.IdleClosed:
			idle++
		case stats.Connections == 0:
			findings = append(findings, wrong("a Session has no connection, so its calls fail", "See the log of the Session: \"cannot connect\" has the reason."))
		case stats.LeaseRemaining > 0 && stats.LeaseRemaining < 2*stats.Heartbeat:
			findings = append(findings, warning(fmt.Sprintf("%v of a lease are left, less than two heartbeats", stats.LeaseRemaining.Round(time.Millisecond)),
				"Look for what keeps the server from responding, or the process from running: RoundTrip of Stats, CPU limits, the network."))
		}
	}
	speed := ""
	if longest > 0 { // a Session that has just begun has measured nothing
		speed = fmt.Sprintf(", a statement takes %v", max(longest.Round(10*time.Microsecond), 10*time.Microsecond))
	}
	asleep := ""
	if idle > 0 {
		asleep = fmt.Sprintf(", %d closed while idle", idle)
	}
	return worst(passed("%s connected%s%s", counted(len(s.sessions)-idle, "Session"), asleep, speed), findings)
}

// socket checks that a Session notices a closed connection at once.
func socket(ctx context.Context, s *subject) Result {
	unwatched := warning("the socket below the driver is not found, so a closed connection is noticed only by the next heartbeat",
		"Pass sqllock.WithSocket, which finds the socket of this driver.")
	switch {
	case s.leaseTable || s.dialect == sqllock.SQLite:
		return skipped("a Session with a lease table keeps no connection")
	case !canWatch:
		return skipped("this system cannot watch a socket without reading from it")
	}
	for _, session := range s.sessions {
		connections := session.Connections()
		known := len(connections) > 0 && (connections[0].PID != 0 || s.dialect != sqllock.PostgreSQL) // or a lease table
		if known && !session.Stats().Watched {
			return unwatched
		}
	}
	if slices.ContainsFunc(s.sessions, func(session *sqllock.Session) bool { return session.Stats().Connections > 0 }) {
		return passed("a closed connection is noticed at once")
	}
	conn, err := dbconn.Lend(ctx, s.db)
	if err != nil {
		return failed(err)
	}
	defer conn.Close()
	if dbconn.SocketOf(conn, nil) == nil {
		return unwatched
	}
	return passed("the socket below the driver is found, so a Session notices a closed connection at once")
}
