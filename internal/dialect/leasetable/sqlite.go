package leasetable

import (
	"context"
	"database/sql"
	"slices"
	"time"

	"github.com/latchkey-go/latchkey/internal/dialect"
	"github.com/latchkey-go/latchkey/internal/dialect/dbconn"
	"github.com/latchkey-go/latchkey/internal/dialect/errcode"
	"github.com/latchkey-go/latchkey/internal/dialect/usertx"
)

// SQLite is the dialect of lease tables in a file that all processes of a fleet
// on one machine share.
//
// Each call is one transaction. It begins by locking the file for writing, so
// that it cannot fail half-way because of another transaction.
type SQLite struct{}

// Traits has a short lease, since only the lease shows that a process is dead.
func (SQLite) Traits() dialect.Traits {
	return dialect.Traits{Name: "sqlite", Lease: 5 * time.Second, CloseTimeout: endTimeout}
}

// Open creates the tables if they are missing, and a session in them. It sets
// the file's journal to write-ahead.
func (SQLite) Open(ctx context.Context, db *sql.DB, set dialect.Settings) (dialect.Session, error) {
	t := &sqliteTables{db: db}
	var s *session
	err := t.prove(ctx)
	if err == nil {
		s, err = openSession(ctx, t, set, new(dbconn.BorrowedSocket))
	}
	if code, ok := errcode.SQLite(err); ok && code&0xff == errcode.SQLiteReadOnly {
		return nil, dialect.Misconfigured(dialect.Fail(err).Error())
	}
	if err != nil {
		return nil, dialect.Fail(err)
	}
	return s, nil
}

// sqliteTables implements tables in SQLite.
type sqliteTables struct {
	db  *sql.DB
	wal bool // the journal is written ahead
}

// The clock is the machine's, which all processes of the file share. Within a
// statement it stands still.
const (
	sqliteMillis = `CAST((julianday('now') - 2440587.5) * 86400000.0 AS INTEGER)`
	sqliteMicros = `CAST((julianday('now') - 2440587.5) * 86400000000.0 AS INTEGER)`
)

// prove checks that all connections of the pool share one file, which can be
// written to.
func (t *sqliteTables) prove(ctx context.Context) error {
	conn, err := dbconn.Lend(ctx, t.db)
	if err != nil {
		return err
	}
	defer conn.Close()
	was, err := t.lend(ctx, conn)
	if err == nil {
		err = untilFree(ctx, func() error { return oneFile(ctx, conn) })
	}
	if err == nil {
		err = t.writeAhead(ctx, conn)
	}
	restore(conn, was)
	return err
}

// oneFile checks that the database is a file and that the connection may write.
func oneFile(ctx context.Context, conn *sql.Conn) error {
	var (
		file      string
		queryOnly bool
	)
	err := conn.QueryRowContext(ctx, "SELECT file, query_only FROM pragma_database_list, pragma_query_only WHERE name = 'main'").Scan(&file, &queryOnly)
	switch {
	case err != nil:
		return err
	case file == "":
		return dialect.Refuse("the database is in memory or temporary, and nobody else's: name a file, or use NewMemory for one process")
	case queryOnly:
		return dialect.Misconfigured("the connections can only read (query_only): Open needs some that can write")
	}
	return nil
}

// writeAhead sets the file's journal to write-ahead, so that readers do not
// keep sessions from renewing. Otherwise the file serves as it is: another
// connection may use it now, or the file system may share no memory.
func (t *sqliteTables) writeAhead(ctx context.Context, conn *sql.Conn) error {
	var mode string
	err := conn.QueryRowContext(ctx, "PRAGMA main.journal_mode = WAL").Scan(&mode)
	t.wal = mode == "wal"
	if errcode.IsBusy(err) {
		return nil
	}
	return err
}

// open implements tables.
func (t *sqliteTables) open(ctx context.Context, s *stamp, holder string) error {
	return t.transact(ctx, func(tx *sqliteTx) error {
		schema := slices.Concat(leaseTables(sqliteTypes), usertx.FenceSchema().SQLite)
		tx.note(dialect.CheckTables(tx.ctx, tx.conn, "sqlite", "", schema, "Schema(SQLite)"))
		for _, statement := range schema {
			tx.exec(statement)
		}
		tx.reap(nil)
		tx.exec(`INSERT INTO main.latchkey_sessions (id, expires, statement, holder) VALUES (?, `+sqliteMillis+` + ?, 0, ?)`,
			s.id, sqliteLease(s), holder)
		return tx.err
	})
}

// sqliteLease returns the lease of s in milliseconds. It is rounded up, and one
// more since the clock is rounded down. So the session never expires before its
// lease has passed since the statement was sent.
func sqliteLease(s *stamp) int64 { return (s.lease + time.Millisecond - 1).Milliseconds() + 1 }

// renewed is transact, and renews s first.
func (t *sqliteTables) renewed(ctx context.Context, s *stamp, f func(*sqliteTx)) error {
	err := t.transact(ctx, func(tx *sqliteTx) error {
		alive := tx.exec(`UPDATE main.latchkey_sessions SET expires = `+sqliteMillis+` + ?, statement = ? WHERE id = ? AND statement >= ? AND expires > `+sqliteMillis,
			sqliteLease(s), s.next(), s.id, s.acked)
		if tx.err == nil && alive == 0 {
			return errExpired
		}
		f(tx)
		return tx.err
	})
	if err == nil {
		s.acknowledge()
	}
	return err
}

// reap deletes the rows of dead sessions. Of keys it also deletes locks whose
// session has no row. It reports whether there was any.
func (tx *sqliteTx) reap(keys []dialect.Key) bool {
	found := tx.exec(`DELETE FROM main.latchkey_sessions WHERE expires <= ` + sqliteMillis)
	if found > 0 {
		tx.exec(`DELETE FROM main.latchkey_locks WHERE session NOT IN (SELECT id FROM main.latchkey_sessions)`)
	}
	found += tx.exec(`DELETE FROM main.latchkey_locks WHERE `+isAmong+` AND session NOT IN (SELECT id FROM main.latchkey_sessions)`, keysAsJSON(keys))
	return found > 0
}

// tokenBlock is how many tokens are reserved with each exchange that takes
// locks.
const tokenBlock = 64

// reserve takes the next n tokens and returns the first. Their counter is never
// behind the clock. So a file that was restored from a copy does not give out
// the same tokens again.
func (tx *sqliteTx) reserve(n int64) (first dialect.Token) {
	if tx.exec(`UPDATE main.latchkey_tokens SET number = max(number, `+sqliteMicros+`) + ?`, n) == 0 {
		tx.exec(`INSERT INTO main.latchkey_tokens (only_row, system, number) VALUES (1, `+sqliteTypes.random+`, `+sqliteMicros+` + ?)`, n)
	}
	if tx.err == nil { // RETURNING takes three times as long
		tx.err = tx.conn.QueryRowContext(tx.ctx, `SELECT system, number - ? FROM main.latchkey_tokens`, n).Scan(&first.System, &first.Number)
	}
	return first
}

// held implements tables.
func (t *sqliteTables) held(ctx context.Context, s *stamp) (keys []dialect.Key, err error) {
	err = t.renewed(ctx, s, func(tx *sqliteTx) {
		keys = tx.keys(keysOfSession, s.id)
	})
	return keys, err
}

// token implements tables.
func (t *sqliteTables) token(ctx context.Context, s *stamp) (first dialect.Token, n int64, err error) {
	err = t.renewed(ctx, s, func(tx *sqliteTx) { first = tx.reserve(tokenBlock) })
	return first, tokenBlock, err
}

// end implements tables.
func (t *sqliteTables) end(ctx context.Context, s *stamp) error {
	return t.transact(ctx, func(tx *sqliteTx) error {
		tx.exec(`DELETE FROM main.latchkey_sessions WHERE id = ?`, s.id)
		tx.exec(`DELETE FROM main.latchkey_locks WHERE session = ?`, s.id)
		return tx.err
	})
}
