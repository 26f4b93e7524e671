package idempotency

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"time"

	"github.com/latchkey-go/latchkey/internal/dialect/choose"
	"github.com/latchkey-go/latchkey/internal/dialect/errcode"
)

// A database is a kind of database that can keep the table of [Schema].
type database interface {
	// check fails if the table could store two responses to one key. A database
	// whose insert notices that has nothing to check.
	check(ctx context.Context, conn *sql.Conn) error

	// enter prepares conn for a transaction that may be idle for maxIdle, and
	// may wait for another one for maxWait. If enter fails, the caller must
	// destroy conn.
	enter(ctx context.Context, conn *sql.Conn, maxIdle, maxWait time.Duration) (responseTable, error)

	// forget deletes at most limit rows that are older than olderThan. It
	// returns their number.
	forget(ctx context.Context, tx *sql.Tx, olderThan time.Duration, limit int) (int64, error)

	// forgetOptions returns how the transaction of forget begins.
	forgetOptions() *sql.TxOptions

	// oneWriter reports whether one transaction at a time can write.
	oneWriter() bool
}

// A responseTable is the table of [Schema] in one transaction of one
// connection.
//
// Invariant: between insert and fill the server keeps the savepoint
// latchkey_effect, or fill fails.
type responseTable interface {
	// insert inserts the row of p, and begins the handler's part with the
	// savepoint. It reports false if the table has a row already.
	insert(ctx context.Context, tx *sql.Tx, p payload) (inserted bool, err error)

	// find returns the columns fingerprint, status, header and body of p's row.
	find(ctx context.Context, tx *sql.Tx, p payload) *sql.Row

	// fill completes the row that insert has inserted in the same transaction.
	// It fails with ErrTxUnusable if there is no such row, or tx is another
	// transaction by now.
	fill(ctx context.Context, tx *sql.Tx, p payload, a *storedResponse) error

	// leave restores the settings of conn. clean reports that no transaction is
	// open. If leave fails, the caller must destroy conn.
	leave(ctx context.Context, conn *sql.Conn, clean bool) error
}

const (
	effectSQL = `SAVEPOINT latchkey_effect`
	undoSQL   = `ROLLBACK TO SAVEPOINT latchkey_effect`
	keepSQL   = `RELEASE SAVEPOINT latchkey_effect` // fails if the transaction has ended, and another may have begun
)

// errSetup reports a mistake of the service's setup, which waiting does not
// correct.
var errSetup = errors.New("idempotency: the database is not set up")

var errUnsupported = fmt.Errorf("%w: it is none of PostgreSQL, MySQL, MariaDB and SQLite: pass idempotency.New a pool of one of them", errSetup)

// on returns the kind of database that conn is connected to, after a check of
// its table. It asks the server once, since a pool does not change its kind.
func (s *store) on(ctx context.Context, conn *sql.Conn) (database, error) {
	if kind := s.kind.Load(); kind != nil {
		return *kind, nil
	}
	kind, err := databaseOn(ctx, conn)
	if err == nil {
		err = kind.check(ctx, conn)
	}
	if err == nil {
		s.kind.Store(&kind)
	}
	return kind, err
}

// databaseOn returns the kind of database that conn is connected to. Others that
// only speak the protocol of one of them are not supported. Nor is a database
// that understands no question, if its connection is alive.
func databaseOn(ctx context.Context, conn *sql.Conn) (database, error) {
	system, _, err := choose.Detect(ctx, conn)
	switch {
	case err == nil && system == choose.PostgreSQL:
		return postgresDatabase{}, nil
	case err == nil && system == choose.MySQL:
		return mysqlDatabase{}, nil
	case err == nil && system == choose.SQLite:
		return sqliteDatabase{}, nil
	case err == nil:
		return nil, errUnsupported
	case statementErrors[serverCode(err)] == "" && conn.PingContext(ctx) == nil: // it has not understood the questions
		return nil, errUnsupported
	}
	return nil, err
}

// unlessNone returns err, or ErrTxUnusable if a fill has changed no row.
func unlessNone(result sql.Result, err error) error {
	if err != nil {
		return err
	}
	if n, err := result.RowsAffected(); err != nil || n > 0 {
		return err
	}
	return ErrTxUnusable
}

// hexLiteral returns b in the notation of MySQL and SQLite. An argument would
// cost MySQL's driver two more round trips.
func hexLiteral(b []byte) string { return fmt.Sprintf("x'%x'", b) }

// serverCode returns the code of the database in err, or "" if err is not an
// error of the database.
func serverCode(err error) string { return errcode.Of(err) }
