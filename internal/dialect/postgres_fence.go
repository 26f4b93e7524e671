package dialect

import (
	"context"
	"fmt"
	"strings"
	"time"
)

// A Token says when a lock was held: of two holders of one key the later has the
// greater token, by Epoch, then by Number. Tokens of different systems do not
// compare.
type Token struct {
	System int64 // which database system
	Epoch  int64 // PostgreSQL: the timeline, which a failover raises; MySQL: what another server raises
	Number int64 // PostgreSQL: the place in the write-ahead log (LSN)

	MySQL bool // the fence is in MySQL's words
}

// Before reports whether t is of an earlier moment than u, in the same system.
func (t Token) Before(u Token) bool {
	if t.Epoch != u.Epoch {
		return t.Epoch < u.Epoch
	}
	return t.Number < u.Number
}

// tokenQuery writes an empty message to the write-ahead log and returns where it
// stands there. The log is on disk before the answer comes, whatever
// synchronous_commit says otherwise: a crash cannot give the place to another.
const tokenQuery = `WITH message AS MATERIALIZED (SELECT pg_logical_emit_message(true, 'latchkey', '') AS lsn)
	SELECT pg_backend_pid(), set_config('synchronous_commit', 'local', true), system_identifier,
		('x' || left(pg_walfile_name(lsn), 8))::bit(32)::bigint, (lsn - '0/0')::bigint
	FROM message, pg_control_system()`

func (s *postgresSession) Token() (t Token, err error) {
	var (
		pid     int64
		setting string
	)
	err = s.conn.QueryRowContext(context.Background(), tokenQuery).Scan(&pid, &setting, &t.System, &t.Epoch, &t.Number)
	switch {
	case err != nil:
		return Token{}, Fail(err)
	case pid != s.pid:
		return Token{}, errOtherProcess
	}
	return t, nil
}

// Fence notes t for key in the table latchkey_fence, as part of tx, and keeps the row
// locked until tx ends. It reports false, and its statement has failed, if the
// row has a later token of the same system: the table's constraint refuses
// the row that this would make. After any error, or false, PostgreSQL does not commit tx; elsewhere
// the caller must not.
func Fence(ctx context.Context, tx Execer, key Key, t Token) (bool, error) {
	statement := fenceStatement(key, t)
	if t.MySQL {
		statement = mysqlFence(key, t)
	}
	_, err := tx.ExecContext(ctx, statement)
	switch {
	case err == nil:
		return true, nil
	case isCheckViolation(err):
		return false, nil
	case isNoFence(err):
		return false, &Failure{Kind: Statement, Reason: "there is no table latchkey_fence in the file that the transaction is in: create it with FenceSchema(SQLite)"}
	case SQLState(err) == "": // it may not even have been sent
		Spoil(ctx, tx)
	}
	return false, Fail(err)
}

// isNoFence reports whether err is SQLite's of a table that is missing: it has no code of its
// own.
func isNoFence(err error) bool {
	_, ok := sqliteCode(err)
	return ok && strings.Contains(err.Error(), "no such table")
}

// fenceStatement is Fence's in the words of PostgreSQL and of SQLite.
func fenceStatement(key Key, t Token) string {
	return fmt.Sprintf("INSERT INTO latchkey_fence AS fence (key_space, key_id, system, timeline, lsn)"+
		" VALUES (%d, %d, %d, %d, %d)"+
		" ON CONFLICT (key_space, key_id) DO UPDATE SET system = excluded.system, timeline = excluded.timeline, lsn = excluded.lsn,"+
		" fenced_at = excluded.fenced_at,"+
		" stale = fence.system = excluded.system AND (fence.timeline, fence.lsn) > (excluded.timeline, excluded.lsn)",
		key.Space, key.ID, t.System, t.Epoch, t.Number)
}

// isCheckViolation reports whether err is of the fence's constraint. Of SQLite's constraints
// the statement can violate no other, and some drivers tell no more.
func isCheckViolation(err error) bool {
	if number, _, ok := mysqlError(err); ok {
		return number == mysqlOutOfRange || number == mysqlCheck || number == mariadbCheck
	}
	if code, ok := sqliteCode(err); ok {
		return code&0xff == sqliteCheck&0xff
	}
	return SQLState(err) == "23514"
}

// postgresFence is the table of Fence in PostgreSQL.
const postgresFence = `CREATE TABLE IF NOT EXISTS latchkey_fence (
	key_space smallint NOT NULL,
	key_id    bigint   NOT NULL,
	system    bigint   NOT NULL, -- pg_control_system()
	timeline  bigint   NOT NULL,
	lsn       bigint   NOT NULL,
	fenced_at timestamptz NOT NULL DEFAULT now(),
	stale     boolean  NOT NULL DEFAULT false CONSTRAINT latchkey_fence_stale CHECK (NOT stale),
	PRIMARY KEY (key_space, key_id)
) WITH (fillfactor = 70)`

// sqliteFence is the table of Fence in SQLite, with the columns of postgresFence.
const sqliteFence = `CREATE TABLE IF NOT EXISTS latchkey_fence (
	key_space INTEGER NOT NULL,
	key_id    INTEGER NOT NULL,
	system    INTEGER NOT NULL, -- of latchkey_tokens
	timeline  INTEGER NOT NULL,
	lsn       INTEGER NOT NULL,
	fenced_at TEXT    NOT NULL DEFAULT CURRENT_TIMESTAMP,
	stale     INTEGER NOT NULL DEFAULT 0 CONSTRAINT latchkey_fence_stale CHECK (NOT stale),
	PRIMARY KEY (key_space, key_id)
)`

// spoilTimeout bounds Spoil: a driver that is cut short closes the connection,
// which serves as well.
const spoilTimeout = time.Second

// Spoil makes tx fail, so that PostgreSQL does not commit it, also if ctx has ended. Others
// refuse the statement and go on.
func Spoil(ctx context.Context, tx Execer) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), spoilTimeout)
	defer cancel()
	_, _ = tx.ExecContext(ctx, "SELECT 'latchkey: this transaction has no valid lock and must not be committed'::int")
}
