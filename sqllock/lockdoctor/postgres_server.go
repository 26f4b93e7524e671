package lockdoctor

import (
	"context"
	"fmt"
	"time"

	"github.com/latchkey-go/latchkey/internal/bound"
	"github.com/latchkey-go/latchkey/internal/dialect"
	"github.com/latchkey-go/latchkey/internal/dialect/dbconn"
	"github.com/latchkey-go/latchkey/internal/dialect/errcode"
	"github.com/latchkey-go/latchkey/internal/dialect/leasetable"
	"github.com/latchkey-go/latchkey/internal/dialect/postgres"
)

// postgresChecks are the checks of PostgreSQL. Those that ask the server come
// after exclusion, which finds out whether questions are harmless.
var postgresChecks = []check{
	{"driver", postgresDriver},
	{"exclusion", postgresExclusion},
	{"socket", socket},
	{"version", postgresVersion},
	{"primary", postgresPrimary},
	{"timeouts", postgresTimeouts},
	{"lock-table", postgresLockTable},
	{"connections", postgresConnections},
	{"clock", clock("SELECT (EXTRACT(epoch FROM pg_catalog.clock_timestamp()) * 1000000)::bigint")},
	{"tables", postgresTables},
	{"rights", postgresRights},
	{"durability", postgresDurability},
	{"registry", postgresRegistry},
	{"secrets", secrets},
	{"neighbours", postgresNeighbours},
	{"audit", postgresAudit},
}

// SQLSTATEs of what PostgreSQL lacks.
const (
	tooManyConnections = "53300" // of the server, the role or the database
	lockTableFull      = "53200"
)

// proofTimeout bounds each question of the proof that locks exclude.
const proofTimeout = 2 * time.Second

// postgresExclusion makes the proof that Open makes, and says what is between
// the pool and the server.
func postgresExclusion(ctx context.Context, s *subject) Result {
	switch {
	case s.leaseTable:
		return skipped("the rows of a lease table exclude behind any pooler")
	case s.lacksTwo():
		return skipped(noProof)
	}
	err := postgres.Dialect{}.Prove(ctx, s.db, dialect.Settings{Proof: bound.Of(proofTimeout)})
	if errcode.SQLState(err) == tooManyConnections {
		s.awaitConnection(ctx)
	}
	if postgres.IsBehindPooler(err) {
		s.hushIfPrepared(ctx)
		if s.mayKeepRows() { // Open has refused any other Session
			s.leaseTable = true
			return skipped("the Sessions keep their locks in a lease table, which excludes behind any pooler")
		}
	}
	if err != nil {
		return failed(err)
	}
	conn, err := dbconn.Lend(ctx, s.db)
	if err != nil {
		return failed(err)
	}
	defer conn.Close()
	var pid int64
	if err := conn.QueryRowContext(ctx, "SELECT pg_catalog.pg_backend_pid()").Scan(&pid); err != nil {
		return failed(err)
	}
	switch handshake, known := dbconn.HandshakePID(conn); {
	case !known:
		return passed("locks on one connection exclude another one")
	case handshake == pid:
		return passed("locks on one connection exclude another one, and no pooler is between")
	}
	return passed("locks on one connection exclude another one: a pooler is between, in session mode")
}

// awaitConnection returns when the server accepts a connection, or after a
// second. The proof has closed the one that it had, and the server counts it
// until its process ends. The next checks would not get one before that.
func (s *subject) awaitConnection(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, bound.Of(time.Second))
	defer cancel()
	for {
		conn, err := dbconn.Lend(ctx, s.db)
		if err == nil {
			_ = conn.Close() // to the pool, for the next check
			return
		}
		if sleep(ctx, 10*time.Millisecond) != nil {
			return
		}
	}
}

// hushIfPrepared stops all further questions if the driver prepares statements.
// Behind a transaction pooler it might carry out those of another client.
func (s *subject) hushIfPrepared(ctx context.Context) {
	conn, err := dbconn.Lend(ctx, s.db)
	if err == nil {
		defer conn.Close()
		err = leasetable.Unprepared(ctx, conn)
	}
	if err != nil {
		s.silent = "not asked, since the driver prepares statements and a pooler may mix them up"
	}
}

// postgresDriver checks the settings of the connection string that decide
// whether a Session finds its way back after an outage.
func postgresDriver(ctx context.Context, s *subject) Result {
	conn, err := dbconn.Lend(ctx, s.db)
	if err != nil {
		return failed(err)
	}
	defer conn.Close()
	var findings []Result
	if s.leaseTable {
		if err := leasetable.Unprepared(ctx, conn); err != nil {
			s.silent = "not asked, since the driver prepares statements, which a pooler may mix up"
			findings = append(findings, failed(err))
		}
	}
	settings, known := dbconn.ConnectSettingsOf(conn)
	if known && settings.Hosts > 1 && settings.AnyServer {
		findings = append(findings, warning("the connection string names several hosts and accepts a standby",
			"Add target_session_attrs=read-write to the connection string."))
	}
	if each := s.timeForEach(settings.Hosts); known && settings.Hosts > 1 && (settings.Timeout <= 0 || settings.Timeout > each) {
		findings = append(findings, oneHostTakesAll(each))
	} else if known && settings.MayHang && settings.Timeout <= 0 {
		findings = append(findings, warning("the connection string has no connect_timeout, so lib/pq may hang for ever in a handshake",
			"Add connect_timeout=5 to the connection string."))
	}
	if !known {
		return worst(skipped("the settings of this driver cannot be read"), findings)
	}
	return worst(passed("the settings of the driver are fit for locks"), findings)
}

// timeForEach is how long each of several hosts may take, so that a Session
// reaches the last one in one attempt. An attempt makes two connections, or one
// for a lease table. For each of them the driver tries the hosts in their order.
func (s *subject) timeForEach(hosts int) time.Duration {
	connections := 2
	if s.leaseTable {
		connections = 1
	}
	return (dialect.ConnectTimeout - 1) / time.Duration(connections*max(1, hosts-1))
}

// oneHostTakesAll is the finding that a host that does not answer uses up an
// attempt to connect, in which each host may take so long.
func oneHostTakesAll(each time.Duration) Result {
	fix := fmt.Sprintf("Set connect_timeout=%d in the connection string.", each/time.Second)
	if each < time.Second {
		fix = "Name fewer hosts in the connection string, and set connect_timeout=1."
	}
	return warning("the connection string names several hosts, and one that does not answer may use up the "+
		dialect.ConnectTimeout.String()+" of an attempt to connect", fix)
}

// postgresVersion checks that the server has idle_session_timeout, by which it
// frees the locks of a process that is gone.
func postgresVersion(ctx context.Context, s *subject) Result {
	var (
		version string
		number  int
	)
	err := s.read(ctx, "SELECT pg_catalog.current_setting('server_version'), pg_catalog.current_setting('server_version_num')::int", &version, &number)
	switch {
	case err != nil:
		return failed(err)
	case number < 140000 && !s.leaseTable:
		return wrong("the server is older than PostgreSQL 14, and cannot free the locks of a dead process", "Upgrade the server to PostgreSQL 14 or newer.")
	}
	return passed("PostgreSQL %s", version)
}

// postgresPrimary checks that the server is the primary and that transactions
// may write.
func postgresPrimary(ctx context.Context, s *subject) Result {
	var (
		standby bool
		setting setting
	)
	err := s.read(ctx, `SELECT pg_catalog.pg_is_in_recovery(), setting, source FROM pg_catalog.pg_settings
		WHERE name = 'default_transaction_read_only'`, &standby, &setting.Value, &setting.Source)
	setting.Name = "default_transaction_read_only"
	switch {
	case err != nil:
		return failed(err)
	case standby:
		return wrong("this server is a standby, which grants locks on its own",
			"Let the connection string lead to the primary: add target_session_attrs=read-write.")
	case setting.Value == "on" && s.leaseTable:
		return wrong("transactions are read-only here ("+setting.origin()+"), and a lease table must be written to", setting.reset())
	case setting.Value == "on":
		return warning("transactions are read-only here ("+setting.origin()+"): Fence, watermarks and the service's own writes fail", setting.reset())
	}
	return passed("the server is a primary, and takes writes")
}

// A setting of the server, as pg_settings shows it.
type setting struct{ Name, Value, Source string }

// origin says in words where the value comes from.
func (s setting) origin() string {
	switch s.Source {
	case "user", "database user":
		return "set for the role"
	case "database":
		return "set for the database"
	case "client":
		return "set by the connection string"
	case "session":
		return "set on a connection of the pool, or leaked by a pooler"
	}
	return "set for the server"
}

// reset returns how to take the setting back where it was set.
func (s setting) reset() string {
	switch s.Source {
	case "user":
		return fmt.Sprintf("ALTER ROLE CURRENT_USER RESET %s;", s.Name)
	case "database user":
		return fmt.Sprintf("ALTER ROLE CURRENT_USER IN DATABASE … RESET %s; with the name of this database", s.Name)
	case "database":
		return fmt.Sprintf("ALTER DATABASE … RESET %s; with the name of this database", s.Name)
	case "client":
		return fmt.Sprintf("Take %s out of the connection string.", s.Name)
	case "session":
		return fmt.Sprintf("Use SET LOCAL %s in a transaction, so that a pooled connection does not keep it.", s.Name)
	}
	return fmt.Sprintf("ALTER SYSTEM RESET %s; or correct postgresql.conf, then SELECT pg_reload_conf();", s.Name)
}
