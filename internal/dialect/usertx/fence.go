// Package usertx has the statements that run in a transaction of the caller:
// fences and watermarks.
//
// Each exists for every kind of database. The tables, which the caller creates
// or a session makes, have the same meaning in all of them.
package usertx

import (
	"context"
	"fmt"
	"time"

	"github.com/latchkey-go/latchkey/internal/dialect"
	"github.com/latchkey-go/latchkey/internal/dialect/errcode"
)

// A Passage is the decision of a fence.
type Passage int

// The decisions.
const (
	Stopped   Passage = iota // the key's row has a later token, or there was an error
	Passed                   // the token is noted
	Elsewhere                // the token is from another server, or from before a restart
)

// Fence notes t for key in the table latchkey_fence, as part of tx, and keeps
// the row locked until tx ends.
//
//   - Stopped: the row has a later token of the same system. The constraint of
//     the table has rejected the new row, so the statement has failed.
//   - Elsewhere: Here does not hold. Fence has changed nothing, and tx can go on.
//
// PostgreSQL does not commit tx after Stopped or an error. On other databases
// the caller must roll tx back.
func Fence(ctx context.Context, tx dialect.Execer, key dialect.Key, t dialect.Token) (Passage, error) {
	if t.MySQL {
		if _, err := tx.ExecContext(ctx, mysqlHere(t)); isCheckViolation(err) {
			return Elsewhere, nil
		} else if err != nil {
			return Stopped, fenceFailure(ctx, tx, err)
		}
	}
	statement := fenceStatement(key, t)
	if t.MySQL {
		statement = mysqlFence(key, t)
	}
	result, err := tx.ExecContext(ctx, statement)
	if isCheckViolation(err) {
		return Stopped, nil
	}
	noted := int64(1)
	if err == nil && !t.MySQL {
		noted, err = result.RowsAffected()
	}
	switch {
	case err != nil:
		return Stopped, fenceFailure(ctx, tx, err)
	case noted == 0 && t.Here != "":
		return Elsewhere, nil
	case noted != 1: // lib/pq before 1.11 takes the end of rows that are open for the statement's own
		return Stopped, fenceFailure(ctx, tx, errAnotherResponse)
	}
	return Passed, nil
}

var errAnotherResponse = &dialect.Failure{
	Kind:   dialect.Statement,
	Reason: "the transaction's connection gave the response to another statement: close the rows of the transaction first",
}

// fenceFailure returns what Fence reports for err, an error that is no decision
// of the fence.
func fenceFailure(ctx context.Context, tx dialect.Execer, err error) error {
	switch {
	case errcode.IsNoTable(err):
		return &dialect.Failure{
			Kind:   dialect.Statement,
			Reason: "there is no table latchkey_fence in the file that the transaction is in: create it with FenceSchema(SQLite)",
		}
	case errcode.SQLState(err) == "": // it may not even have been sent
		Spoil(ctx, tx)
	}
	return dialect.Fail(err)
}

// fenceStatement returns the statement for PostgreSQL and SQLite. It changes no
// row if Here of t does not hold.
//
// Every token in the table was noted on the server that gave it, so all are of
// one history. A row from before a restart compares as well.
func fenceStatement(key dialect.Key, t dialect.Token) string {
	values := fmt.Sprintf("%d, %d, %d, %d, %d", key.Space, key.ID, t.System, t.Epoch, t.Number)
	rows := "VALUES (" + values + ")"
	if t.Here != "" {
		rows = "SELECT " + values + " WHERE " + t.Here
	}
	return "INSERT INTO latchkey_fence AS fence (key_space, key_id, system, timeline, lsn) " + rows +
		" ON CONFLICT (key_space, key_id) DO UPDATE SET system = excluded.system, timeline = excluded.timeline, lsn = excluded.lsn," +
		" fenced_at = excluded.fenced_at," +
		" stale = fence.system = excluded.system AND (fence.timeline, fence.lsn) > (excluded.timeline, excluded.lsn)"
}

// isCheckViolation reports whether err is of the fence's constraint. The
// statement can violate no other constraint of SQLite, and some drivers give no
// extended code.
func isCheckViolation(err error) bool {
	if number, _, ok := errcode.MySQL(err); ok {
		return number == errcode.MySQLOutOfRange || number == errcode.MySQLCheck || number == errcode.MariaDBCheck
	}
	if code, ok := errcode.SQLite(err); ok {
		return code&0xff == errcode.SQLiteCheck&0xff
	}
	return errcode.SQLState(err) == "23514"
}

// spoilTimeout bounds Spoil. A driver whose statement is cut short closes the
// connection, which serves as well.
const spoilTimeout = time.Second

// Spoil makes tx fail, so that PostgreSQL does not commit it, even if ctx has
// ended. Other databases reject the statement and go on.
func Spoil(ctx context.Context, tx dialect.Execer) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), spoilTimeout)
	defer cancel()
	_, _ = tx.ExecContext(ctx, "SELECT 'latchkey: this transaction has no valid lock and must not be committed'::int")
}

// mysqlHere returns a statement that fails unless Here of t holds, since no
// BIGINT holds the sum.
//
// It is apart from mysqlFence, which a replica repeats with
// binlog_format=STATEMENT, and a replica has another name. It reads no table,
// so the transaction has no snapshot yet when the fence waits for its row.
func mysqlHere(t dialect.Token) string {
	return "SELECT 9223372036854775807 + (NOT IFNULL(" + t.Here + ", 0))"
}

// mysqlFence returns the statement of Fence for MySQL.
//
// MySQL assigns from left to right, so the comparison with the old row comes
// first. For a later token its sum is one that no BIGINT holds. That is an
// error in every mode, while a session may switch the constraint off.
func mysqlFence(key dialect.Key, t dialect.Token) string {
	return fmt.Sprintf("INSERT INTO latchkey_fence (key_space, key_id, system_id, timeline, lsn) VALUES (%d, %d, %d, %d, %d)"+
		" ON DUPLICATE KEY UPDATE"+
		" stale = 9223372036854775807 + (system_id = %[3]d AND (timeline > %[4]d OR timeline = %[4]d AND lsn > %[5]d)) <> 9223372036854775807,"+
		" system_id = %[3]d, timeline = %[4]d, lsn = %[5]d, fenced_at = CURRENT_TIMESTAMP(6)",
		key.Space, key.ID, t.System, t.Epoch, t.Number)
}
