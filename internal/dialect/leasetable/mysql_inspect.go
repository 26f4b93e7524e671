package leasetable

import (
	"context"
	"database/sql"
	"errors"
	"time"

	"github.com/latchkey-go/latchkey/internal/dialect"
	"github.com/latchkey-go/latchkey/internal/dialect/errcode"
	"github.com/latchkey-go/latchkey/internal/dialect/mysql"
)

// Inspect implements dialect.Inspector. It reads the lease tables, and on MariaDB
// and MySQL the locks of GET_LOCK, too. If the server does not list those, that is
// an error only where no session has a lease.
func (MySQL) Inspect(ctx context.Context, conn *sql.Conn) (*dialect.Inspection, error) {
	server, err := mysql.Inspected(ctx, conn, true)
	if err != nil {
		return nil, dialect.Fail(err)
	}
	i := new(dialect.Inspection)
	if !server.TiDB {
		i, err = mysql.Dialect{}.Inspect(ctx, conn)
	}
	if err != nil && !errors.Is(err, errors.ErrUnsupported) {
		return nil, err
	}
	leases, sessions, leaseErr := inspectLeases(ctx, conn, server)
	switch {
	case leaseErr != nil:
		return nil, dialect.Fail(leaseErr)
	case err != nil && sessions == 0:
		return nil, err
	case i == nil:
		i = new(dialect.Inspection)
	}
	i.At, i.Leases, i.Tables = leases.At, leases.Leases, leases.Tables
	return i, nil
}

// inspectLeases reads the lease tables, and how many sessions have a lease.
func inspectLeases(ctx context.Context, conn *sql.Conn, server mysql.Server) (i dialect.Inspection, sessions int, err error) {
	t := new(mysqlTables)
	t.on(server)
	c := mysqlConn{mysqlTables: t, ctx: ctx, conn: conn}
	if server.TiDB { // its clock stands in a transaction alone
		if err = c.send(rollbackWork); err == nil {
			err = c.send("BEGIN OPTIMISTIC")
		}
		if err != nil {
			return i, 0, err
		}
		defer func() { _ = c.send(rollbackWork) }()
	}
	var now int64
	err = c.row("SELECT CLOCK, COUNT(*) FROM SCHEMA.latchkey_sessions WHERE expires > CLOCK", &now, &sessions)
	if code, _, _ := errcode.MySQL(err); code == errcode.MySQLNoSuchTable {
		if i.At = time.Now(); server.TiDB {
			i.Tables.Leases = dialect.TableMissing
		}
		return i, 0, nil
	}
	if err != nil {
		return i, 0, err
	}
	i.At, i.Tables.Leases = time.UnixMicro(now), dialect.TableRead
	rows, err := conn.QueryContext(ctx, c.sql(`SELECT l.key_space, l.key_id, s.id, s.holder, s.expires, CAST(UNIX_TIMESTAMP(l.acquired) * 1000000 AS SIGNED)
		FROM SCHEMA.latchkey_locks AS l JOIN SCHEMA.latchkey_sessions AS s ON s.id = l.session WHERE l.statement >= s.counts_from LIMIT `+all))
	if err != nil {
		return i, 0, err
	}
	defer rows.Close()
	for rows.Next() {
		var (
			l                 dialect.LeasedLock
			expires, acquired int64
		)
		if err := rows.Scan(&l.Space, &l.ID, &l.Session, &l.Holder, &expires, &acquired); err != nil {
			return i, 0, err
		}
		l.Expires, l.Acquired = time.UnixMicro(expires), time.UnixMicro(acquired)
		i.Leases = append(i.Leases, l)
	}
	return i, sessions, rows.Err()
}
