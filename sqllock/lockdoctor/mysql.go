package lockdoctor

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/latchkey-go/latchkey/internal/bound"
	"github.com/latchkey-go/latchkey/internal/dialect"
	"github.com/latchkey-go/latchkey/internal/dialect/mysql"
	"github.com/latchkey-go/latchkey/sqllock"
)

// mysqlChecks are the checks of MySQL and MariaDB.
var mysqlChecks = []check{
	{name: "socket", examine: socket},
	{name: "primary", examine: mysqlPrimary},
	{name: "exclusion", examine: mysqlExclusion},
	{name: "timeouts", examine: mysqlTimeouts},
	{name: "packet", examine: mysqlPacket},
	{name: "connections", examine: mysqlConnections},
	{name: "clock", examine: clock("SELECT CAST(UNIX_TIMESTAMP(SYSDATE(6)) * 1000000 AS SIGNED)")},
	{name: "tables", examine: tables, needs: (*subject).find},
	{name: "rights", examine: mysqlRights, needs: (*subject).find},
	{name: "secrets", examine: secrets, needs: (*subject).find},
}

// mysqlExclusion opens a session and ends it. Its refusals name the version,
// a cluster with several primaries, or a proxy. A lease table needs no proof.
func mysqlExclusion(ctx context.Context, s *subject) (fine string, err error) {
	if s.leaseTable {
		conn, err := s.lend(ctx)
		if err != nil {
			return "", err
		}
		defer conn.Close()
		_, err = mysql.Inspected(ctx, conn, false)
		return "the rows of a lease table exclude", err
	}
	if err := s.hasTwo(); err != nil {
		return "", err
	}
	// Open has accepted the server of a Session, perhaps by WithDialect.
	accepted := slices.ContainsFunc(s.sessions, func(session *sqllock.Session) bool { return session.Dialect() == sqllock.MySQL })
	session, err := mysql.Dialect{Named: accepted}.Open(ctx, s.db, dialect.Settings{Proof: bound.Of(proofTimeout), Lease: s.lease, StatementTimeout: s.lease})
	if err != nil {
		return "", err
	}
	session.Destroy()
	var version string
	if err := s.read(ctx, "SELECT VERSION()", &version); err != nil {
		return "", err
	}
	return "locks on one connection exclude another one, on version " + version, nil
}

// variables returns those variables that the server has. The scope is GLOBAL or
// SESSION, and pattern is that of LIKE.
func (s *subject) variables(ctx context.Context, scope, pattern string) (map[string]setting, error) {
	values := map[string]setting{}
	return values, s.each(ctx, "SHOW "+scope+" VARIABLES LIKE '"+pattern+"'", func(scan func(...any) error) error {
		var is setting
		err := scan(&is.name, &is.value)
		values[is.name] = is
		return err
	})
}

// mysqlPrimary checks that the server takes writes.
func mysqlPrimary(ctx context.Context, s *subject) (fine string, err error) {
	values, err := s.variables(ctx, "GLOBAL", "%read_only")
	if err != nil {
		return "", err
	}
	// The one that has to be changed first is named, with a fix that the server
	// accepts: innodb_read_only cannot be set, and super_read_only goes with
	// read_only.
	for _, name := range []string{"innodb_read_only", "super_read_only", "read_only", "tidb_restricted_read_only", "tidb_super_read_only"} {
		fix := "Let the connection string lead to the primary, or SET GLOBAL read_only = OFF; on the primary itself."
		switch name {
		case "tidb_restricted_read_only", "tidb_super_read_only":
			fix = "SET GLOBAL tidb_restricted_read_only = OFF; and SET GLOBAL tidb_super_read_only = OFF; if the cluster is to take writes."
		case "innodb_read_only":
			fix = "Let the connection string lead to the primary: this server takes no writes before another configuration and a restart."
		}
		if value := values[name].value; value != "OFF" && value != "0" && value != "" {
			s.wrong("this server is read-only ("+name+"), so a replica, which grants locks on its own", fix)
			break
		}
	}
	return "the server takes writes", nil
}

// mysqlTimeouts checks the timeouts that a new connection has. A Session sets
// its own on the connections of its locks.
func mysqlTimeouts(ctx context.Context, s *subject) (fine string, err error) {
	values, err := s.variables(ctx, "SESSION", "%time%")
	if err != nil {
		return "", err
	}
	return s.timeouts(values, []timeout{
		{"max_statement_time", time.Second, time.Second, "statements end before a Session has connected"},        // MariaDB
		{"max_execution_time", time.Millisecond, time.Second, "statements end before a Session has connected"},   // MySQL
		{"wait_timeout", time.Second, s.lease, "the server closes pooled connections sooner than a lease would"}, // both
		{"idle_transaction_timeout", time.Second, s.lease, "the server ends the transactions of Fence sooner than a lease would"},
		{"idle_write_transaction_timeout", time.Second, s.lease, "the server ends the transactions of Fence sooner than a lease would"},
	}), nil
}

// mysqlPacket checks the length that a statement may have.
func mysqlPacket(ctx context.Context, s *subject) (fine string, err error) {
	const least = 1 << 20
	var length int
	if err := s.read(ctx, "SELECT @@session.max_allowed_packet", &length); err != nil {
		return "", err
	}
	if length < least {
		s.warn(fmt.Sprintf("a statement may have %d bytes only (max_allowed_packet), so few keys go together", length),
			"Set max_allowed_packet to 16M in the server's configuration.")
	}
	return fmt.Sprintf("a statement may have %d bytes", length), nil
}
