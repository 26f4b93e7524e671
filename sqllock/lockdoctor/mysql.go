package lockdoctor

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/latchkey-go/latchkey/internal/bound"
	"github.com/latchkey-go/latchkey/internal/dialect"
	"github.com/latchkey-go/latchkey/internal/dialect/dbconn"
	"github.com/latchkey-go/latchkey/internal/dialect/mysql"
	"github.com/latchkey-go/latchkey/sqllock"
)

// mysqlChecks are the checks of MySQL and MariaDB.
var mysqlChecks = []check{
	{"socket", socket},
	{"primary", mysqlPrimary},
	{"exclusion", mysqlExclusion},
	{"timeouts", mysqlTimeouts},
	{"packet", mysqlPacket},
	{"connections", mysqlConnections},
	{"clock", clock("SELECT CAST(UNIX_TIMESTAMP(SYSDATE(6)) * 1000000 AS SIGNED)")},
	{"tables", mysqlTables},
	{"rights", mysqlRights},
	{"secrets", secrets},
}

// mysqlExclusion makes the proof that Open makes. Its refusals name the version,
// a cluster with several primaries, or a proxy.
func mysqlExclusion(ctx context.Context, s *subject) Result {
	if s.lacksTwo() {
		return skipped(noProof)
	}
	// Open has accepted the server of a Session, perhaps by WithDialect.
	accepted := slices.ContainsFunc(s.sessions, func(session *sqllock.Session) bool { return session.Dialect() == sqllock.MySQL })
	if err := (mysql.Dialect{Named: accepted}).Prove(ctx, s.db, dialect.Settings{Proof: bound.Of(proofTimeout), Lease: s.lease, StatementTimeout: s.lease}); err != nil {
		return failed(err)
	}
	var version string
	if err := s.read(ctx, "SELECT VERSION()", &version); err != nil {
		return failed(err)
	}
	return passed("locks on one connection exclude another one, on version %s", version)
}

// variables returns those of the named variables that the server has. The scope
// is what SHOW calls it.
func (s *subject) variables(ctx context.Context, scope string, names ...string) (map[string]string, error) {
	conn, err := dbconn.Lend(ctx, s.db)
	if err != nil {
		return nil, err
	}
	defer conn.Close()
	rows, err := conn.QueryContext(ctx, "SHOW "+scope+" WHERE Variable_name IN ('"+strings.Join(names, "','")+"')")
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	values := map[string]string{}
	for rows.Next() {
		var name, value string
		if err := rows.Scan(&name, &value); err != nil {
			return nil, err
		}
		values[strings.ToLower(name)] = value
	}
	return values, rows.Err()
}

// mysqlPrimary checks that the server takes writes.
func mysqlPrimary(ctx context.Context, s *subject) Result {
	values, err := s.variables(ctx, "GLOBAL VARIABLES", "read_only", "super_read_only", "innodb_read_only")
	if err != nil {
		return failed(err)
	}
	return readOnlyResult(values)
}

// readOnlyResult judges the variables of mysqlPrimary. It names the one that has to be
// changed first.
func readOnlyResult(values map[string]string) Result {
	const primary = "Let the connection string lead to the primary"
	for _, is := range []struct{ name, fix string }{
		{"innodb_read_only", primary + ": this server takes no writes before another configuration and a restart."},
		{"super_read_only", primary + ", or SET GLOBAL read_only = OFF; on the primary itself."}, // which takes back both
		{"read_only", primary + ", or SET GLOBAL read_only = OFF; on the primary itself."},
	} {
		if value := values[is.name]; value != "OFF" && value != "0" && value != "" {
			return wrong("this server is read-only ("+is.name+"), so a replica, which grants locks on its own", is.fix)
		}
	}
	return passed("the server takes writes")
}

// mysqlTimeouts checks the timeouts that a new connection has. A Session sets
// its own on the connections of its locks.
func mysqlTimeouts(ctx context.Context, s *subject) Result {
	limits := []struct {
		name  string
		unit  time.Duration
		least time.Duration
		harm  string
	}{
		{"max_statement_time", time.Second, time.Second, "statements end before a Session has connected"},        // MariaDB
		{"max_execution_time", time.Millisecond, time.Second, "statements end before a Session has connected"},   // MySQL
		{"wait_timeout", time.Second, s.lease, "the server closes pooled connections sooner than a lease would"}, // both
		{"idle_transaction_timeout", time.Second, s.lease, "the server ends the transactions of Fence sooner than a lease would"},
		{"idle_write_transaction_timeout", time.Second, s.lease, "the server ends the transactions of Fence sooner than a lease would"},
	}
	var names []string
	for _, l := range limits {
		names = append(names, l.name)
	}
	values, err := s.variables(ctx, "SESSION VARIABLES", names...)
	if err != nil {
		return failed(err)
	}
	var findings []Result
	for _, l := range limits {
		number, err := strconv.ParseFloat(values[l.name], 64)
		timeout := time.Duration(number * float64(l.unit))
		if err == nil && timeout > 0 && timeout < l.least {
			longer := "to 0 or to more than the lease"
			if l.name == "wait_timeout" {
				longer = "to more than the lease (0 would be one second)"
			}
			findings = append(findings, warning(fmt.Sprintf("%s is %v: %s", l.name, timeout, l.harm),
				"SET GLOBAL "+l.name+" "+longer+", in the server's configuration too; or take it out of the connection string."))
		}
	}
	return worst(passed("no timeout of the server or of the connection string is shorter than what locks need (lease %v)", s.lease), findings)
}

// mysqlPacket checks the length that a statement may have.
func mysqlPacket(ctx context.Context, s *subject) Result {
	const least = 1 << 20
	var length int
	if err := s.read(ctx, "SELECT @@session.max_allowed_packet", &length); err != nil {
		return failed(err)
	}
	if length < least {
		return warning(fmt.Sprintf("a statement may have %d bytes only (max_allowed_packet), so few keys go together", length),
			"Set max_allowed_packet to 16M in the server's configuration.")
	}
	return passed("a statement may have %d bytes", length)
}

// mysqlConnections checks how many connections the server and the user have
// left.
func mysqlConnections(ctx context.Context, s *subject) Result {
	status, err := s.variables(ctx, "GLOBAL STATUS", "Threads_connected")
	if err != nil {
		return failed(err)
	}
	var most, ofUser, byUser int
	err = s.read(ctx, `SELECT @@global.max_connections, @@session.max_user_connections,
		(SELECT COUNT(*) FROM information_schema.processlist WHERE user = SUBSTRING_INDEX(USER(), '@', 1))`, &most, &ofUser, &byUser)
	if err != nil {
		return failed(err)
	}
	used, _ := strconv.Atoi(status["threads_connected"])
	findings := s.connectionFindings(connectionLimit{"the server", most, used, "Raise max_connections, or close connections of other clients."})
	if ofUser > 0 {
		findings = append(findings, s.connectionFindings(connectionLimit{"the user", ofUser, byUser, "ALTER USER … WITH MAX_USER_CONNECTIONS 0; with this user, or a limit with room for the fleet"})...)
	}
	return worst(passed("%d of %d connections of the server are in use", used, most), findings)
}
