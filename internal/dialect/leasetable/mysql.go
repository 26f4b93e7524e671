package leasetable

import (
	"context"
	"database/sql"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/latchkey-go/latchkey/internal/dialect"
	"github.com/latchkey-go/latchkey/internal/dialect/dbconn"
	"github.com/latchkey-go/latchkey/internal/dialect/errcode"
	"github.com/latchkey-go/latchkey/internal/dialect/mysql"
	"github.com/latchkey-go/latchkey/internal/dialect/usertx"
)

// MySQL is the dialect of lease tables in TiDB, and in MariaDB and MySQL behind
// a proxy that shares the server's connections.
type MySQL struct {
	TiDB     bool // the server has said so
	MayBeFed bool // the user answers for a server that another one feeds
}

// tidbLease is the default on TiDB. A new leader of the placement driver may begin
// up to three seconds ahead (tso-save-interval), and a tenth of the lease covers
// that.
const tidbLease = 30 * time.Second

// Traits says that one session serves any number of locks.
func (d MySQL) Traits() dialect.Traits {
	t := dialect.Traits{Name: "mysql", Lease: dialect.DefaultLease, CloseTimeout: endTimeout}
	if d.TiDB {
		t.Lease = tidbLease
	}
	return t
}

// Open creates the tables if they are missing, and a session in them.
func (d MySQL) Open(ctx context.Context, db *sql.DB, set dialect.Settings) (dialect.Session, error) {
	t := &mysqlTables{pool: dbconn.Pool{DB: db, Find: set.Socket}}
	err := t.prove(ctx, d.MayBeFed)
	var s *session
	if err == nil {
		s, err = openSession(ctx, t, set, &t.pool.Socket)
	}
	if err != nil {
		return nil, dialect.Fail(err)
	}
	s.room = t.room
	return s, nil
}

// mysqlTables implements tables in the SQL of MySQL.
//
// No process that stops half-way keeps a row locked. On MariaDB and MySQL each
// statement commits by itself. On TiDB a call is one optimistic transaction, which
// locks nothing before its commit.
//
// A statement may arrive after its session has given it up. So each call has a
// number, and rows are told apart by it:
//
//   - The row of a lock has the number of the exchange that inserted it, or of the
//     last Held that found it.
//   - It counts if its session's row exists and its number is not below counts_from
//     there. What does not count never does again, so anyone may delete it.
//   - To release deletes rows of earlier exchanges only.
//   - Held gives the rows that count its own number, and then sets counts_from to
//     it. So what a late statement inserts does not count.
//
// Reads are FOR UPDATE on MariaDB and MySQL. So a proxy sends them to the primary,
// and a transaction that is not committed is not seen. The server reads the row of
// a lock before that of its session, which was there first. On TiDB a read sees
// the moment of the transaction's beginning, and a conflict ends the transaction.
type mysqlTables struct {
	pool   dbconn.Pool
	schema string // quoted, with its dot
	tidb   bool
	room   int // keys that a statement may carry
	epoch  dialect.Token
}

const (
	// mysqlClock is the server's clock at this moment. NOW is that of the beginning
	// of the statement, and an earlier user of the connection may have set it. Both
	// it and SYSDATE are in local time, so a difference as large as that between
	// summer and winter makes the clock NULL.
	mysqlClock = "IF(ABS(TIMESTAMPDIFF(SECOND, NOW(6), SYSDATE(6))) < 600," +
		" UNIX_TIMESTAMP() * 1000000 + MICROSECOND(NOW(6)) + TIMESTAMPDIFF(MICROSECOND, NOW(6), SYSDATE(6)), NULL)"

	// tidbClock is when the transaction began, by the clock of the cluster. It does
	// not depend on that of one TiDB server.
	tidbClock = "((TIDB_CURRENT_TSO() >> 18) * 1000)"
)

// prove checks that the server is one whose rows all processes share, creates
// missing tables, and fills in the fields of t.
func (t *mysqlTables) prove(ctx context.Context, mayBeFed bool) error {
	return t.pool.Once(ctx, func(conn *sql.Conn) error {
		server, err := mysql.Inspected(ctx, conn, mayBeFed)
		if err != nil {
			return err
		}
		t.on(server)
		c := mysqlConn{mysqlTables: t, ctx: ctx, conn: conn}
		if err = c.send(rollbackWork); err == nil { // of an earlier user
			err = c.makeTables()
		}
		if err == nil {
			t.epoch = dialect.Token{MySQL: true, Outlives: true, Here: "TRUE"}
			err = c.row("SELECT system_id, epoch FROM SCHEMA.latchkey_tokens WHERE only_row = 1 LIMIT 1 LOCKING", &t.epoch.System, &t.epoch.Epoch)
		}
		if err == nil {
			err = c.send("COMMIT AND NO CHAIN NO RELEASE") // where autocommit is off, the read has locked the row
		}
		if number, _, _ := errcode.MySQL(err); number == errcode.MySQLDenied {
			return errMySQLRights
		}
		return err
	})
}

// on sets the fields of t that depend on the server.
func (t *mysqlTables) on(server mysql.Server) {
	t.schema, t.tidb, t.room = mysqlQuoted(server.Database)+".", server.TiDB, server.Longest/bytesPerKey
}

// bytesPerKey is more than a key takes in a statement.
const bytesPerKey = 80

var errMySQLRights = dialect.Misconfigured("the user may not use or create the lease tables: run the statements of Schema(MySQL) and FenceSchema(MySQL) once as a user who may," +
	" and grant this one SELECT, INSERT, UPDATE and DELETE on them")

// mysqlQuoted returns name as an identifier, whatever the sql_mode says.
func mysqlQuoted(name string) string { return "`" + strings.ReplaceAll(name, "`", "``") + "`" }

// A mysqlConn is a connection of the pool during one call of a session.
type mysqlConn struct {
	*mysqlTables
	ctx  context.Context //nolint:containedctx // the connection is borrowed for one call
	conn *sql.Conn
	s    *stamp
}

// with calls f with a connection, for the next call of s. It first ends a
// transaction that an earlier user of the connection has left open: on TiDB by the
// BEGIN, which commits it. On TiDB f is called again after a conflict.
func (t *mysqlTables) with(ctx context.Context, s *stamp, f func(mysqlConn) error) error {
	s.next()
	return t.pool.Once(ctx, func(conn *sql.Conn) error {
		c := mysqlConn{mysqlTables: t, ctx: ctx, conn: conn, s: s}
		if t.tidb {
			return dbconn.UnlessRolledBack(ctx, func() error { return c.transact(f) })
		}
		if err := c.send(rollbackWork); err != nil {
			return err
		}
		return f(c)
	})
}

// transact calls f in a transaction of TiDB.
func (c mysqlConn) transact(f func(mysqlConn) error) error {
	err := c.send("BEGIN OPTIMISTIC")
	if err == nil {
		err = f(c)
	}
	if err == nil {
		return c.send("COMMIT AND NO CHAIN NO RELEASE")
	}
	if c.send(rollbackWork) != nil {
		dbconn.Destroy(c.conn, "")
	}
	return err
}

// rollbackWork ends a transaction, whatever the user's completion_type says.
const rollbackWork = "ROLLBACK AND NO CHAIN NO RELEASE"

// send sends a statement as it is.
func (c mysqlConn) send(statement string) error {
	_, err := c.conn.ExecContext(c.ctx, statement)
	return err
}

// sql fills in the words of a statement.
func (c mysqlConn) sql(statement string) string {
	words := []string{"SCHEMA.", c.schema}
	if c.tidb {
		words = append(words, "CLOCK", tidbClock, " LOCKING", "", "COMMITS", "TRUE")
	} else {
		words = append(words, "CLOCK", mysqlClock, " LOCKING", " FOR UPDATE", "COMMITS", "@@autocommit = 1")
	}
	if c.s != nil {
		words = append(words, "SESSION", number(c.s.id), "LASTS", number(c.s.lease.Microseconds()+1),
			"NUMBER", number(c.s.last), "ACKNOWLEDGED", number(c.s.acked), "COUNTED", number(c.s.countsFrom))
	}
	return strings.NewReplacer(words...).Replace(statement)
}

// repeat calls f, which sends a statement, and again if the server has rolled that
// back because of others. On TiDB the whole transaction is repeated.
func (c mysqlConn) repeat(f func() error) error {
	if c.tidb {
		return f()
	}
	return dbconn.UnlessRolledBack(c.ctx, f)
}

func number(n int64) string { return strconv.FormatInt(n, 10) }

// exec sends a statement.
func (c mysqlConn) exec(statement string) (result sql.Result, err error) {
	err = c.repeat(func() error {
		result, err = c.conn.ExecContext(c.ctx, c.sql(statement))
		return err
	})
	return result, err
}

// changed is exec, and returns how many rows were changed.
func (c mysqlConn) changed(statement string) (int64, error) {
	result, err := c.exec(statement)
	if err != nil {
		return 0, err
	}
	return result.RowsAffected()
}

// row scans the one row of query.
func (c mysqlConn) row(query string, dest ...any) error {
	return c.repeat(func() error {
		err := c.conn.QueryRowContext(c.ctx, c.sql(query)).Scan(dest...)
		return err
	})
}

// renew renews the session's row, as the exchange NUMBER, and sets more of it.
// It returns errExpired in three cases:
//
//   - The session has expired.
//   - A later exchange was here.
//   - An exchange that was acknowledged is lost.
//
// A user may have switched autocommit off for the connection. Then renew changes
// nothing, switches it on, and tries once more.
func (c mysqlConn) renew(more string) error {
	for range 2 {
		n, err := c.changed(`UPDATE SCHEMA.latchkey_sessions SET expires = CLOCK + LASTS, statement = NUMBER` + more + `
			WHERE id = SESSION AND statement < NUMBER AND statement >= ACKNOWLEDGED AND expires > CLOCK AND COMMITS`)
		if err != nil {
			return err
		}
		if n == 1 {
			return nil
		}
		var commits bool
		if err := c.row("SELECT COMMITS", &commits); err != nil {
			return err
		}
		if commits {
			return errExpired
		}
		if _, err := c.exec("SET autocommit = 1"); err != nil {
			return err
		}
	}
	return errExpired
}

// makeTables creates the missing tables, if those that are there fit.
func (c mysqlConn) makeTables() error {
	statements := append(MySQLSchema(), usertx.FenceSchema().MySQL...)
	err := dialect.CheckTables(c.ctx, c.conn, "mysql", "", statements, "Schema(MySQL) and FenceSchema(MySQL)")
	if err != nil {
		return err
	}
	var tables int
	err = c.row("SELECT COUNT(*) FROM information_schema.tables WHERE table_schema = DATABASE()"+
		" AND table_name IN ('latchkey_sessions', 'latchkey_locks', 'latchkey_tokens')", &tables)
	if err != nil {
		return err
	}
	if tables == 3 {
		statements = usertx.FenceSchema().MySQL[1:2] // the row: the process that made the table may have died before
	}
	for _, s := range statements {
		if _, err := c.exec(s); err != nil {
			return err
		}
	}
	return nil
}

// open implements tables. It also deletes the rows of dead sessions.
func (t *mysqlTables) open(ctx context.Context, s *stamp, holder string) error {
	return t.with(ctx, s, func(c mysqlConn) error {
		if err := c.send("SET autocommit = 1"); err != nil { // no effect on a transaction that has begun
			return err
		}
		dead, err := c.numbers("SELECT id FROM SCHEMA.latchkey_sessions WHERE expires <= CLOCK LIMIT 1000 LOCKING")
		for i := 0; i < len(dead) && err == nil; i++ {
			err = c.remove(dead[i][0])
		}
		if err == nil && !c.tidb { // where a process may have stopped between two statements
			dead, err = c.numbers(`SELECT l.session FROM SCHEMA.latchkey_locks AS l LEFT JOIN SCHEMA.latchkey_sessions AS s ON s.id = l.session
				WHERE s.id IS NULL LIMIT 1000 LOCKING`)
			for i := 0; i < len(dead) && err == nil; i++ {
				err = c.removeLocks(dead[i][0])
			}
		}
		if err != nil {
			return err
		}
		insert := c.sql("INSERT INTO SCHEMA.latchkey_sessions (id, expires, statement, counts_from, holder) VALUES (SESSION, CLOCK + LASTS, 0, 0, ")
		return c.repeat(func() error { return c.send(insert + dialect.Quoted(holder) + ")") })
	})
}

// remove deletes a session that has expired, and then its locks.
func (c mysqlConn) remove(id int64) error {
	n, err := c.changed("DELETE FROM SCHEMA.latchkey_sessions WHERE id = " + number(id) + " AND expires <= CLOCK")
	if err == nil && n == 1 {
		err = c.removeLocks(id)
	}
	return err
}

func (c mysqlConn) removeLocks(session int64) error {
	_, err := c.exec("DELETE FROM SCHEMA.latchkey_locks WHERE session = " + number(session) + " LIMIT " + all)
	return err
}

// all is no limit. It takes the place of a sql_select_limit of the connection, and
// sql_safe_updates asks for one.
const all = "9223372036854775807"

// held implements tables.
func (t *mysqlTables) held(ctx context.Context, s *stamp) (keys []dialect.Key, err error) {
	err = t.with(ctx, s, func(c mysqlConn) error {
		keys = nil
		_, err := c.exec("UPDATE SCHEMA.latchkey_locks SET statement = NUMBER WHERE session = SESSION AND statement < NUMBER AND statement >= COUNTED LIMIT " + all)
		if err == nil {
			err = c.renew(", counts_from = NUMBER")
		}
		if err != nil {
			return err
		}
		rows, err := c.numbers("SELECT key_space, key_id FROM SCHEMA.latchkey_locks WHERE session = SESSION AND statement = NUMBER LIMIT " + all + " LOCKING")
		for _, r := range rows {
			keys = append(keys, dialect.Key{Space: dialect.Space(r[0]), ID: r[1]}) //nolint:gosec // the session wrote it
		}
		return err
	})
	if err == nil {
		s.acknowledge()
		s.countsFrom = s.last
	}
	return keys, err
}

// token implements tables. The counter is never behind the clock, so tokens grow
// even if a failover has lost the last ones. The session lives after the counter
// was read, so it held its locks then.
func (t *mysqlTables) token(ctx context.Context, s *stamp) (token dialect.Token, n int64, err error) {
	token = t.epoch
	err = t.with(ctx, s, func(c mysqlConn) error {
		err := c.count(&token)
		if err == nil {
			err = c.renew("")
		}
		return err
	})
	if err == nil {
		s.acknowledge()
	}
	return token, 1, err
}

// count increments the counter. If the table was emptied, it makes the row
// again.
func (c mysqlConn) count(token *dialect.Token) error {
	for {
		result, err := c.exec("UPDATE SCHEMA.latchkey_tokens SET number = LAST_INSERT_ID(GREATEST(number + 1, COALESCE(CLOCK, 0))) WHERE only_row = 1")
		if err != nil {
			return err
		}
		if n, err := result.RowsAffected(); err != nil || n == 1 {
			token.Number, _ = result.LastInsertId() // it fails if RowsAffected does
			return err
		}
		_, err = c.exec(fmt.Sprintf("INSERT IGNORE INTO SCHEMA.latchkey_tokens (only_row, system_id, server_hash, epoch, number) VALUES (1, %d, 0, %d, 0)", token.System, token.Epoch))
		if err != nil {
			return err
		}
	}
}

// end implements tables.
func (t *mysqlTables) end(ctx context.Context, s *stamp) error {
	return t.with(ctx, s, func(c mysqlConn) error {
		_, err := c.exec("DELETE FROM SCHEMA.latchkey_sessions WHERE id = SESSION")
		if err == nil {
			err = c.removeLocks(s.id)
		}
		return err
	})
}

// numbers returns the rows of a query for numbers.
func (c mysqlConn) numbers(query string) (all [][6]int64, err error) {
	err = c.repeat(func() error {
		all = all[:0]
		rows, err := c.conn.QueryContext(c.ctx, c.sql(query))
		if err != nil {
			return err
		}
		defer rows.Close()
		columns, err := rows.Columns()
		if err != nil {
			return err
		}
		for rows.Next() {
			var r [6]int64
			dest := []any{&r[0], &r[1], &r[2], &r[3], &r[4], &r[5]}
			if err := rows.Scan(dest[:len(columns)]...); err != nil {
				return err
			}
			all = append(all, r)
		}
		return rows.Err()
	})
	return all, err
}
