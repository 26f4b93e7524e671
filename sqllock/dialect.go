package sqllock

// A Dialect names a kind of database for [WithDialect] and [Schema].
type Dialect string

// The dialects. Open detects that of a database.
const (
	// PostgreSQL is version 14 or newer. Locks are advisory locks, or rows of a
	// lease table (WithLeaseTable).
	PostgreSQL Dialect = "postgres"

	// SQLite is version 3.35 or newer, for the processes of one machine. Locks
	// are rows of a lease table. Open sets the journal of the file to
	// write-ahead (WAL) permanently.
	//
	// A file has one writer at a time. While a transaction of the service
	// writes to the file of the locks, calls for locks wait. They return
	// ErrUnavailable after 0.9 s. If the transaction lasts for four fifths of
	// the lease, the locks are lost. A fenced transaction is one that writes.
	// So keep the locks in a file of their own, unless all transactions are
	// short. Give the connections of the data a busy_timeout.
	SQLite Dialect = "sqlite"

	// MySQL is MySQL 8.0.16, MariaDB 10.5 or newer. Locks are those of
	// GET_LOCK.
	MySQL Dialect = "mysql"
)

// WithDialect sets which kind of database db is, so that Open does not detect
// it. Open still proves that locks exclude. It returns an error for a Dialect
// that is not a constant of this package.
func WithDialect(d Dialect) Option {
	return func(o *options) { o.named = d }
}
