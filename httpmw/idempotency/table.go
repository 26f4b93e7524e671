package idempotency

import (
	"context"
	"database/sql"
	"fmt"
	"time"

	"github.com/latchkey-go/latchkey/sqllock"
)

// A kind is a kind of database that can keep the table of [Schema].
type kind struct {
	dialect sqllock.Dialect
	table   func() table

	// check fails if the table could store two responses to one key. It is nil
	// if an insert notices that.
	check func(ctx context.Context, conn *sql.Conn) error

	// forgetSQL deletes rows that are older than a number of microseconds, at
	// most another number of them.
	forgetSQL     string
	forgetOptions *sql.TxOptions
	oneWriter     bool // one transaction at a time can write
}

// A table is the table of [Schema] in one transaction of one connection.
//
// Invariant: after insert the server keeps the savepoint latchkey_effect until
// fill, or fill fails.
type table interface {
	// enter prepares conn for a transaction that may be idle for maxIdle, and
	// may wait for another one for maxWait. If enter fails, the caller must
	// destroy conn.
	enter(ctx context.Context, conn *sql.Conn, maxIdle, maxWait time.Duration) error

	// insert inserts the row of p. It reports false if the table has one already.
	insert(ctx context.Context, tx *sql.Tx, p payload) (inserted bool, err error)

	// find returns the columns fingerprint, status, header and body of p's row.
	find(ctx context.Context, tx *sql.Tx, p payload) *sql.Row

	// fill completes the row that insert has inserted in the same transaction.
	// It fails, or changes 0 rows, if there is no such row, or tx is another
	// transaction by now.
	fill(ctx context.Context, tx *sql.Tx, p payload, a *storedResponse) (rows int64, err error)

	// leave restores the settings of conn. clean reports that no transaction is
	// open. If leave fails, the caller must destroy conn.
	leave(ctx context.Context, conn *sql.Conn, clean bool) error
}

const (
	effectSQL = `SAVEPOINT latchkey_effect`
	undoSQL   = `ROLLBACK TO SAVEPOINT latchkey_effect`
	keepSQL   = `RELEASE SAVEPOINT latchkey_effect` // fails if the transaction has ended, and another may have begun
)

// affected returns how many rows a statement has changed.
func affected(result sql.Result, err error) (int64, error) {
	if err != nil {
		return 0, err
	}
	return result.RowsAffected()
}

// A literalTable is what the tables of MySQL and SQLite have in common. Its
// statements have keys as literals: an argument would cost MySQL's driver two
// more round trips.
type literalTable struct {
	name    string
	locking string // at the end of a query, to read what was committed last
}

func literal(b []byte) string { return fmt.Sprintf("x'%x'", b) }

// row returns the INSERT of p's row.
func (t literalTable) row(p payload) string {
	return fmt.Sprintf("INSERT INTO %s (`key`, fingerprint) VALUES (%s, %s)", t.name, literal(p.key[:]), literal(p.fingerprint[:]))
}

func (t literalTable) find(ctx context.Context, tx *sql.Tx, p payload) *sql.Row {
	return tx.QueryRowContext(ctx, "SELECT fingerprint, status, header, body FROM "+t.name+" WHERE `key` = "+literal(p.key[:])+t.locking)
}

func (t literalTable) fill(ctx context.Context, tx *sql.Tx, p payload, a *storedResponse) (int64, error) {
	if _, err := tx.ExecContext(ctx, keepSQL); err != nil {
		return 0, err
	}
	return affected(tx.ExecContext(ctx, "UPDATE "+t.name+" SET status = ?, header = ?, body = ? WHERE `key` = "+literal(p.key[:]),
		a.status, a.encodeHeader(), a.body))
}
