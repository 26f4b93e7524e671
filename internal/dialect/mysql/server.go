package mysql

import (
	"context"
	"crypto/sha256"
	"database/sql"
	"encoding/binary"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/latchkey-go/latchkey/internal/dialect"
	"github.com/latchkey-go/latchkey/internal/dialect/dbconn"
)

// A server is what a server of MySQL or MariaDB says about itself.
type server struct {
	version   string
	mariadb   bool
	database  []byte            // the one that the connection is in, as the server compares it
	variables map[string]string // those of serverVariables that it has
	status    map[string]string // those of serverStatus that it has
}

// serverVariables decide whether locks count, and how long a statement may be.
var serverVariables = append([]string{
	"read_only", "super_read_only", "innodb_read_only", "wsrep_on", "group_replication_single_primary_mode", "max_allowed_packet", "gtid_binlog_state",
}, identityVariables...)

// serverStatus are status variables that every user may read. They tell whether
// another server feeds this one.
var serverStatus = []string{"wsrep_provider_name", "Slave_running", "Slaves_running", "Slaves_connected"}

// identityVariables distinguish a server from others, such as its replica.
var identityVariables = []string{"server_uuid", "server_uid", "server_id", "hostname", "port"}

// identity returns a number that identifies the server.
func (s server) identity() int64 {
	hash := sha256.New()
	for _, name := range identityVariables {
		fmt.Fprintf(hash, "%s=%q;", name, s.variables[name])
	}
	return int64(binary.BigEndian.Uint64(hash.Sum(nil)) >> 1) //nolint:gosec // one bit is gone
}

// name returns an expression that identifies the server. It computes a hash of
// the same variables.
func (s server) name() string {
	var globals []string
	for _, name := range identityVariables {
		if s.variables[name] != "" {
			globals = append(globals, "@@global."+name)
		}
	}
	return "SHA2(CONCAT_WS(',', " + strings.Join(globals, ", ") + "), 256)"
}

// longest returns the length that a statement may have. A longer one would end
// the connection.
func (s server) longest() int {
	const (
		drivers = 4 << 20 // what drivers allow that do not know what the server does
		other   = 1 << 10 // for what is not the text
	)
	if n, err := strconv.Atoi(s.variables["max_allowed_packet"]); err == nil && n > 0 {
		return min(n, drivers) - min(other, n/2)
	}
	return drivers - other
}

const (
	isReadOnly = "this server is read-only, so a replica, which grants locks on its own: connect to the primary"

	tooOld = "MySQL 8.0.16 or MariaDB 10.5 or newer is needed: older servers have no constraints for fences, or cannot give all locks back"
)

// tidbTooOld refuses a TiDB with tidb_disable_txn_auto_retry, which newer ones
// ignore.
const tidbTooOld = "TiDB 8.0 or newer is needed: an older one may carry out a transaction again after it has reported the result"

var errNoDatabase = dialect.Misconfigured("the connection is in no database, by whose name locks are told apart: name one in the connection string")

// fit checks that the locks of the server exclude all other sessions.
func (s server) fit() error {
	oldest := [3]int{8, 0, 16}
	if s.mariadb {
		oldest = [3]int{10, 5, 0}
	}
	switch {
	case strings.Contains(strings.ToLower(s.version), "-cluster"), strings.Contains(strings.ToLower(s.version), "ndb"):
		return dialect.Refuse("this server is one of MySQL NDB Cluster, each of which grants locks on its own: use a database that has one primary")
	case olderThan(s.version, oldest):
		return dialect.Refuse(tooOld)
	case len(s.database) == 0:
		return errNoDatabase
	case isOn(s.variables["read_only"]), isOn(s.variables["super_read_only"]), isOn(s.variables["innodb_read_only"]):
		return dialect.Refuse(isReadOnly)
	case isOn(s.variables["wsrep_on"]), s.hasGalera(): // a node at work may say wsrep_on=OFF
		return dialect.Refuse("this server is a node of a Galera cluster, each of which grants locks on its own: use a database that has one primary")
	case strings.EqualFold(s.variables["group_replication_single_primary_mode"], "OFF"):
		return dialect.Refuse("this server is in a replication group with several primaries, each of which grants locks on its own:" +
			" set group_replication_single_primary_mode=ON")
	}
	return nil
}

// hasGalera reports whether the server has loaded a library for clusters.
func (s server) hasGalera() bool {
	name := s.status["wsrep_provider_name"]
	return name != "" && name != "none"
}

// unfed checks that the server is not a replica without read_only. MariaDB tells
// every user whether it applies changes of another server at this moment.
// docs/decisions/0043-a-fed-server.md gives the reasons for what is accepted.
func (s server) unfed() error {
	switch {
	case !isOn(s.status["slave_running"]): // not connected to a primary, or connected to several by name, or MySQL
	case s.status["slaves_running"] != "1": // collects the changes of several servers
	case s.status["slaves_connected"] != "0": // may feed the server that feeds it
	case s.hasOwnWrites(): // is or was a primary itself
	default:
		return dialect.Refuse(isFed)
	}
	return nil
}

const isFed = "this server is a replica without read_only (Slave_running), which grants locks on its own:" +
	" connect to the primary, or end its replication (STOP SLAVE) if it is the primary now;" +
	" if all processes of the service connect to this server, pass WithDialect(sqllock.MySQL)"

// hasOwnWrites reports whether the server's log has a change that was made on
// this server. The state of the log has the last GTID of each server: "0-1-42,0-2-7".
func (s server) hasOwnWrites() bool {
	for gtid := range strings.SplitSeq(s.variables["gtid_binlog_state"], ",") {
		if parts := strings.Split(gtid, "-"); len(parts) == 3 && parts[1] == s.variables["server_id"] {
			return true
		}
	}
	return false
}

// isOn reports whether the value of a variable is neither OFF nor empty.
func isOn(value string) bool { return value != "" && value != "0" && !strings.EqualFold(value, "OFF") }

// olderThan compares the numbers at the beginning of a version. Behind a proxy,
// MariaDB may begin with the version of a MySQL that it replaces, and a hyphen.
func olderThan(version string, oldest [3]int) bool {
	var is [3]int
	n, _ := fmt.Sscanf(strings.TrimPrefix(version, "5.5.5-"), "%d.%d.%d", &is[0], &is[1], &is[2])
	return n < 2 || slices.Compare(is[:], oldest[:]) < 0
}

// A Server is what lease tables need to know of a server.
type Server struct {
	Database string // the one that the connection is in
	TiDB     bool
	Longest  int // the length that a statement may have
}

// Inspected returns what conn's server says about itself, if all processes that
// connect to it share its rows. mayBeFed says that the user answers for a server
// that another one feeds.
func Inspected(ctx context.Context, conn *sql.Conn, mayBeFed bool) (found Server, err error) {
	s, err := (&proof{Pair: dbconn.Pair{Session: conn}}).server(ctx)
	if err == nil {
		_, release, isTiDB := strings.Cut(s.version, "TiDB-v")
		found = Server{TiDB: isTiDB, Longest: s.longest()}
		switch {
		case !isTiDB:
			if err = s.fit(); err == nil && !mayBeFed {
				err = s.unfed()
			}
		case olderThan(release, [3]int{8}):
			err = dialect.Refuse(tidbTooOld)
		case len(s.database) == 0:
			err = errNoDatabase
		}
	}
	if err == nil {
		err = conn.QueryRowContext(ctx, "SELECT DATABASE()").Scan(&found.Database)
	}
	return found, err
}
