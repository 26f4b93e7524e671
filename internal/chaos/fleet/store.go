package fleet

import (
	"context"
	"database/sql"
	"fmt"
	"slices"

	"github.com/latchkey-go/latchkey/internal/chaos/worker"
	"github.com/latchkey-go/latchkey/sqllock"
)

// A Store says where the processes of a fleet keep their locks.
type Store string

// The stores.
const (
	Postgres     Store = "postgres"      // advisory locks
	Leases       Store = "leases"        // a lease table in PostgreSQL
	PooledLeases Store = "pooled-leases" // likewise, behind PgBouncer in transaction mode
	MariaDB      Store = "mariadb"       // GET_LOCK
	SQLite       Store = "sqlite"        // a lease table in a file
)

// Stores returns all stores.
func Stores() []Store { return []Store{Postgres, Leases, PooledLeases, MariaDB, SQLite} }

// Known reports an error if there is no such store.
func (s Store) Known() error {
	if !slices.Contains(Stores(), s) {
		return fmt.Errorf("fleet: there is no store %q: it is one of %q", s, Stores())
	}
	return nil
}

// String returns the name of s for people.
func (s Store) String() string {
	switch s {
	case Leases:
		return "a lease table in PostgreSQL"
	case PooledLeases:
		return "a lease table behind PgBouncer"
	case MariaDB:
		return "MariaDB"
	case SQLite:
		return "SQLite"
	}
	return "PostgreSQL"
}

// Leased reports whether locks are rows of a lease table. Such a lock outlives
// the connection that brought it, and its holder's process, until its lease has
// passed.
func (s Store) Leased() bool { return s == Leases || s == PooledLeases || s == SQLite }

// OnPostgres reports whether there is a PostgreSQL server.
func (s Store) OnPostgres() bool { return s != MariaDB && s != SQLite }

// Readers reports whether there are readers' locks.
func (s Store) Readers() bool { return s == Postgres || s == "" }

// Registry reports whether a Session can write to the registry.
func (s Store) Registry() bool { return s.Readers() }

// Database is the kind of database of the work.
func (s Store) Database() sqllock.Dialect {
	switch s {
	case MariaDB:
		return sqllock.MySQL
	case SQLite:
		return sqllock.SQLite
	}
	return sqllock.PostgreSQL
}

// A backend is the server or the file of a fleet, as its store needs it.
type backend interface {
	// start makes the database and its tables, and returns the observer's pool.
	start(ctx context.Context) (*sql.DB, error)

	// admit makes m's role.
	admit(ctx context.Context, m *Member) error

	// address is where the processes connect to, host:port. It is empty if
	// there is no network.
	address() string

	// configure sets the driver and the DSNs of m's process.
	configure(m *Member, c *worker.Config)

	// version names the software, with its version.
	version(ctx context.Context) (string, error)

	// locks counts the locks in force of any kind, and lists the keys among
	// them.
	locks(ctx context.Context) (n int, keys []int64, err error)

	// locksOf counts those of a Session, or its rows.
	locksOf(ctx context.Context, pid int) (int, error)

	// remains counts what a process that has ended should not leave behind,
	// besides locks.
	remains(ctx context.Context) (int, error)

	close() error
}

// newBackend returns the backend of f's store.
func newBackend(f *Fleet) backend {
	switch f.Store {
	case MariaDB:
		return &mariadbBackend{f: f}
	case SQLite:
		return &sqliteBackend{f: f}
	}
	return &postgresBackend{f: f}
}

// holder is a pattern for the holder of a session in a lease table.
func holder(pid int) string { return fmt.Sprintf("%%/%d", pid) }

// numbers reads a column of numbers.
func numbers(ctx context.Context, db *sql.DB, query string, args ...any) (all []int64, err error) {
	rows, err := db.QueryContext(ctx, query, args...)
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	for rows.Next() {
		var n int64
		if err := rows.Scan(&n); err != nil {
			return nil, err
		}
		all = append(all, n)
	}
	return all, rows.Err()
}
