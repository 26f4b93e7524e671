package lockdoctor

import (
	"context"
	"fmt"
	"runtime"
	"slices"
	"time"

	"github.com/latchkey-go/latchkey/internal/dialect"
	"github.com/latchkey-go/latchkey/internal/dialect/dbconn"
	"github.com/latchkey-go/latchkey/internal/dialect/leasetable"
	"github.com/latchkey-go/latchkey/sqllock"
)

// The checks of this process: its pool, its driver, its clock and its Sessions.

// poolSize checks that the pool may open the connections that a Session needs.
// How long its connections may live (SetConnMaxLifetime) cannot be read. A
// Session does not depend on it.
func poolSize(_ context.Context, s *subject) (fine string, err error) {
	switch most := s.pool.MaxOpenConnections; {
	case most == 0:
		return fmt.Sprintf("the pool may open any number of connections, and has %d in use", s.pool.InUse), nil
	case most < s.needed():
		s.wrong("the pool may open one connection only, and a Session needs a second one for a moment to prove that locks exclude",
			"Call db.SetMaxOpenConns(5) for the pool of the locks.")
	case s.pool.InUse >= most:
		s.warn(fmt.Sprintf("all %d connections of the pool are in use, so a Session could not reconnect", most),
			"Give the Session a pool of its own with SetMaxOpenConns(5), which no request uses.")
	}
	return fmt.Sprintf("the pool may open %d connections, and has %d in use", s.pool.MaxOpenConnections, s.pool.InUse), nil
}

// needed returns how many connections of the pool a Session needs at a time. One
// of advisory locks needs a second one for its proof.
func (s *subject) needed() int {
	if s.dialect == sqllock.SQLite || s.leaseTable || s.mayKeepRows() {
		return 1
	}
	return 2
}

// hasTwo returns a skip if the pool has fewer than two free connections, which
// the proof of a Session needs. The Sessions that are open may use the others.
func (s *subject) hasTwo() error {
	if most := s.pool.MaxOpenConnections; most > 0 && most-s.pool.InUse < 2 {
		return skip("the proof needs two free connections of the pool")
	}
	return nil
}

// postgresDriver checks the settings of the connection string that decide
// whether a Session finds its way back after an outage.
func postgresDriver(ctx context.Context, s *subject) (fine string, err error) {
	conn, err := s.lend(ctx)
	if err != nil {
		return "", err
	}
	defer conn.Close()
	if s.leaseTable {
		if err := leasetable.Unprepared(ctx, conn); err != nil {
			s.silent = mixedUp
			return "", err
		}
	}
	settings, known := dbconn.ConnectSettingsOf(conn)
	if !known {
		return "", skip("the settings of this driver cannot be read")
	}
	several := settings.Hosts > 1
	if several && settings.AnyServer {
		s.warn("the connection string names several hosts and accepts a standby", "Add target_session_attrs=read-write to the connection string.")
	}
	// An attempt makes as many connections as a Session needs, and for each of
	// them the driver tries the hosts in their order. The last one must be reached.
	each := (dialect.ConnectTimeout - 1) / time.Duration(s.needed()*max(1, settings.Hosts-1))
	switch {
	case several && (settings.Timeout <= 0 || settings.Timeout > each):
		fix := fmt.Sprintf("Set connect_timeout=%d in the connection string.", each/time.Second)
		if each < time.Second {
			fix = "Name fewer hosts in the connection string, and set connect_timeout=1."
		}
		s.warn("the connection string names several hosts, and one that does not answer may use up the "+dialect.ConnectTimeout.String()+" of an attempt to connect", fix)
	case !several && settings.MayHang && settings.Timeout <= 0:
		s.warn("the connection string has no connect_timeout, so lib/pq may hang for ever in a handshake", "Add connect_timeout=5 to the connection string.")
	}
	return "the settings of the driver are fit for locks", nil
}

const mixedUp = "not asked, since the driver prepares statements, which a pooler may mix up"

// clock checks the clock of the server, which query returns in microseconds since
// 1970, against that of this process.
//
// Locks do not depend on it: each side measures durations only. But people
// compare the times of logs and of the registry.
func clock(query string) func(context.Context, *subject) (string, error) {
	const limit = time.Second
	return func(ctx context.Context, s *subject) (fine string, err error) {
		var micros int64
		sent := time.Now()
		if err := s.read(ctx, query, &micros); err != nil {
			return "", err
		}
		at := time.UnixMicro(micros)
		if early, late := sent.Sub(at), time.Until(at); max(early, late) > limit { // beyond what the round trip leaves open
			side := "behind"
			if late > 0 {
				side = "ahead of"
			}
			s.warn(fmt.Sprintf("the clock of the server is %v %s the clock of this process, so times in logs and in the registry do not fit together", max(early, late).Round(10*time.Millisecond), side),
				"Set both clocks by NTP, without steps: a step of the server's clock by a tenth of the lease costs locks.")
		}
		return fmt.Sprintf("the clocks of the server and of this process agree up to %v", limit), nil
	}
}

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
