package mysql

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"regexp"
	"strings"
	"time"

	"github.com/latchkey-go/latchkey/internal/dialect"
	"github.com/latchkey-go/latchkey/internal/dialect/dbconn"
	"github.com/latchkey-go/latchkey/internal/dialect/errcode"
)

// Inspect implements dialect.Inspector. A transaction that an earlier user of conn
// has left open stays open. The server lists its locks in one of two places, and
// this server or this user may have neither.
//
// A connection that waits is blocked by the holder of its key. The order of several
// waiters is not known.
func (Dialect) Inspect(ctx context.Context, conn *sql.Conn) (*dialect.Inspection, error) {
	server, err := (&proof{Pair: dbconn.Pair{Session: conn}}).server(ctx)
	if err == nil {
		err = server.fit()
	}
	if err != nil {
		return nil, dialect.Fail(err)
	}
	names := newLockNames(server.database)
	list, err := findLockList(ctx, conn, server.mariadb)
	if err != nil {
		return nil, err
	}
	rows, err := conn.QueryContext(ctx, list.query(names))
	if isDenied(err) {
		return nil, cannotList(server.mariadb, noRight)
	}
	if err != nil {
		return nil, dialect.Fail(err)
	}
	defer rows.Close()
	i := new(dialect.Inspection)
	for rows.Next() {
		if err := scanLock(i, rows, names); err != nil {
			return nil, dialect.Fail(err)
		}
	}
	for _, w := range i.Locks {
		if w.Granted {
			continue
		}
		for _, h := range i.Locks {
			if h.Granted && h.Space == w.Space && h.ID == w.ID {
				i.Blocked = append(i.Blocked, dialect.InspectedWait{PID: w.PID, By: []int{h.PID}})
			}
		}
	}
	return i, dialect.Fail(rows.Err())
}

// scanLock reads a row of a lockList. Only the time is there if there is no lock.
func scanLock(i *dialect.Inspection, rows *sql.Rows, names lockNames) error {
	var (
		now                                   int64
		name, status, address, command, state sql.NullString
		pid, age                              sql.NullInt64
	)
	if err := rows.Scan(&now, &name, &status, &pid, &address, &command, &state, &age); err != nil {
		return err
	}
	i.At = time.UnixMicro(now)
	if status.String == statement {
		name.String = waitedFor(name.String)
	}
	key, ok := names.key(name.String)
	if !ok {
		return nil
	}
	p := dialect.InspectedProcess{PID: int(pid.Int64), Address: address.String, State: command.String, WaitEvent: state.String}
	if age.Valid {
		p.StateSince = i.At.Add(-time.Duration(age.Int64) * time.Microsecond)
	}
	l := dialect.InspectedLock{PID: p.PID, Space: key.Space, ID: key.ID, Granted: status.String == "GRANTED"}
	if p.WaitEvent == "User lock" {
		l.Since = p.StateSince
	}
	i.Processes, i.Locks = append(i.Processes, p), append(i.Locks, l)
	return nil
}

// A lockList is a place where a server lists its locks. It is a SELECT of the
// name of a lock, GRANTED or PENDING, and of the connection.
type lockList string

const (
	// metadataLocks is the list of MySQL, which is on by default, and of MariaDB,
	// where it is off. threads has the seconds since a connection's state began.
	metadataLocks lockList = `SELECT m.OBJECT_NAME AS name, m.LOCK_STATUS AS status, t.PROCESSLIST_ID AS pid, t.PROCESSLIST_HOST AS host,
		t.PROCESSLIST_COMMAND AS command, t.PROCESSLIST_STATE AS state, t.PROCESSLIST_TIME * 1000000 AS age
	FROM performance_schema.metadata_locks AS m JOIN performance_schema.threads AS t ON t.THREAD_ID = m.OWNER_THREAD_ID
	WHERE m.OBJECT_TYPE = 'USER LEVEL LOCK' AND m.LOCK_STATUS IN ('GRANTED', 'PENDING') AND m.OBJECT_NAME LIKE 'PREFIX%'`

	// metadataLockInfo is the list of a plugin of MariaDB. It has granted locks
	// only. A connection that waits shows the name in its statement.
	metadataLockInfo lockList = `SELECT m.TABLE_SCHEMA AS name, 'GRANTED' AS status, m.THREAD_ID AS pid, p.HOST AS host,
		p.COMMAND AS command, p.STATE AS state, CAST(p.TIME_MS * 1000 AS SIGNED) AS age
	FROM information_schema.METADATA_LOCK_INFO AS m LEFT JOIN information_schema.PROCESSLIST AS p ON p.ID = m.THREAD_ID
	WHERE m.LOCK_TYPE = 'User lock' AND m.TABLE_SCHEMA LIKE 'PREFIX%'
	UNION ALL SELECT INFO, '` + statement + `', ID, HOST, COMMAND, STATE, CAST(TIME_MS * 1000 AS SIGNED)
	FROM information_schema.PROCESSLIST WHERE STATE = 'User lock' AND INFO LIKE '%PREFIX%'`

	// statement is the status of a row with a statement that waits, in place of a
	// name.
	statement = "STATEMENT"
)

// query returns the statement that reads the list. It has at least one row,
// with the time in microseconds since 1970.
func (l lockList) query(names lockNames) string {
	return `SELECT CAST(UNIX_TIMESTAMP(NOW(6)) * 1000000 AS SIGNED), l.* FROM (SELECT 1 AS one) AS o LEFT JOIN (` +
		strings.ReplaceAll(string(l), "PREFIX", names.prefix) + `) AS l ON true`
}

// findLockList returns the list that conn's user can read. MariaDB's plugin
// comes first, since it also knows locks that were taken before it was
// installed.
func findLockList(ctx context.Context, conn *sql.Conn, mariadb bool) (lockList, error) {
	if mariadb {
		var plugins int
		err := conn.QueryRowContext(ctx, `SELECT COUNT(*) FROM information_schema.PLUGINS WHERE PLUGIN_NAME = 'METADATA_LOCK_INFO' AND PLUGIN_STATUS = 'ACTIVE'`).Scan(&plugins)
		if err != nil {
			return "", dialect.Fail(err)
		}
		if plugins > 0 {
			return metadataLockInfo, nil
		}
	}
	var instruments int
	err := conn.QueryRowContext(ctx, `SELECT COUNT(*) FROM performance_schema.setup_instruments WHERE NAME = 'wait/lock/metadata/sql/mdl' AND ENABLED = 'YES'`).Scan(&instruments)
	switch {
	case isDenied(err):
		return "", cannotList(mariadb, noRight)
	case err != nil:
		return "", dialect.Fail(err)
	case instruments == 0:
		return "", cannotList(mariadb, "performance_schema=ON and its instrument wait/lock/metadata/sql/mdl are needed")
	}
	return metadataLocks, nil
}

const noRight = "this user may not read performance_schema: grant it SELECT ON performance_schema.*"

// isDenied reports whether err means that the user may not read a table.
func isDenied(err error) bool {
	number, _, ok := errcode.MySQL(err)
	return ok && number == errcode.MySQLDenied
}

// cannotList is the error of a server that does not show its locks.
func cannotList(mariadb bool, reason string) error {
	if mariadb {
		reason = "run INSTALL SONAME 'metadata_lock_info' once"
	}
	return fmt.Errorf("the server does not show who holds its locks: %s: %w", reason, errors.ErrUnsupported)
}

// waits matches the call that a statement waits in, if its name is not computed.
var waits = regexp.MustCompile(`(?i)\bGET_LOCK\s*\(\s*['"](latchkey\.[0-9a-f.]+)['"]`)

// waitedFor returns the name of the lock that a statement waits for. It returns
// "" if the statement asks for several, since it may wait for any of them.
func waitedFor(statement string) (name string) {
	for _, call := range waits.FindAllStringSubmatch(statement, -1) {
		if name != "" && name != call[1] {
			return ""
		}
		name = call[1]
	}
	return name
}
