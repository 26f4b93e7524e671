package idempotency

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/latchkey-go/latchkey/internal/dialect/errcode"
)

// A database is one kind of database that can keep the table of
// [Schema].
type database interface {
	// check fails if the table could store two responses to one key. Databases that
	// notice it at the insert have nothing to check.
	check(ctx context.Context, conn *sql.Conn) error

	// enter prepares conn for a transaction that may be idle for maxIdle. If it
	// fails, conn must be destroyed.
	enter(ctx context.Context, conn *sql.Conn, maxIdle time.Duration) (responseTable, error)

	// forget deletes at most limit rows that are older than olderThan, and returns
	// how many it has deleted.
	forget(ctx context.Context, tx *sql.Tx, olderThan time.Duration, limit int) (int64, error)

	// forgetIn is how the transaction of forget begins.
	forgetIn() *sql.TxOptions

	// oneWriter reports whether one transaction at a time can write.
	oneWriter() bool
}

// An responseTable is the table of [Schema] as one connection sees it,
// inside of one transaction.
//
// Invariant: between insert and fill the server keeps the savepoint
// latchkey_effect, or fill fails.
type responseTable interface {
	// insert inserts the row of p, and begins the handler's part with the savepoint.
	// It reports false if the table has a row already. It waits at most
	// claimTimeout for another transaction.
	insert(ctx context.Context, tx *sql.Tx, p payload) (inserted bool, err error)

	// find returns the columns fingerprint, status, header and body of p's row.
	find(ctx context.Context, tx *sql.Tx, p payload) *sql.Row

	// fill completes the row that insert has inserted in the same transaction. It
	// fails with ErrTxUnusable if there is no such row, or the transaction is another.
	fill(ctx context.Context, tx *sql.Tx, p payload, a *storedResponse) error

	// leave puts the settings of conn back. clean tells that no transaction is open.
	// If it fails, conn must be destroyed.
	leave(ctx context.Context, conn *sql.Conn, clean bool) error
}

const (
	effectSQL = `SAVEPOINT latchkey_effect`
	undoSQL   = `ROLLBACK TO SAVEPOINT latchkey_effect`
	keepSQL   = `RELEASE SAVEPOINT latchkey_effect` // fails if the transaction has ended, and another may have begun
)

// errSetup is a mistake of the service's setup, which waiting does not mend.
var errSetup = errors.New("idempotency: the database is not set up for an Idempotency")

var errUnsupported = fmt.Errorf("%w: it is none of PostgreSQL, MySQL, MariaDB and SQLite: pass New a pool of one of them", errSetup)

// on returns the kind of database that conn is connected to, whose table it has
// checked. It asks once: a pool does not change its kind.
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

// databaseOn asks conn for its version. A database that understands neither
// question, and whose connection lives, is none that is supported.
func databaseOn(ctx context.Context, conn *sql.Conn) (database, error) {
	var version string
	err := conn.QueryRowContext(ctx, "SELECT version()").Scan(&version)
	if err == nil {
		return databaseOf(version)
	}
	if ctx.Err() != nil || errors.Is(err, driver.ErrBadConn) {
		return nil, err
	}
	if conn.QueryRowContext(ctx, "SELECT sqlite_version()").Scan(&version) == nil {
		return sqliteDatabase{}, nil
	}
	if conn.PingContext(ctx) == nil {
		return nil, errUnsupported
	}
	return nil, err
}

// databaseOf knows PostgreSQL, MySQL and MariaDB by what version() returns. What
// speaks their protocol and is another database is not supported.
func databaseOf(version string) (database, error) {
	for _, other := range []string{"-YB-", "Redshift", "TiDB", "Vitess", "OceanBase", "SingleStore"} {
		if strings.Contains(version, other) {
			return nil, errUnsupported
		}
	}
	switch {
	case strings.HasPrefix(version, "PostgreSQL "):
		return postgresDatabase{}, nil
	case version != "" && version[0] >= '0' && version[0] <= '9': // 8.0.36, 10.11.19-MariaDB
		return mysqlDatabase{}, nil
	}
	return nil, errUnsupported
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

// hexLiteral is b as MySQL and SQLite write it. An argument would cost MySQL's
// driver two more round trips.
func hexLiteral(b []byte) string { return fmt.Sprintf("x'%x'", b) }

// serverCode is the code that the database gave with err; "" if err is not the
// database's.
func serverCode(err error) string { return errcode.Of(err) }
