// Package fleet is the system under test: several processes of the kit at work
// on one server, each behind a network of its own, or on one file.
package fleet

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/latchkey-go/latchkey/internal/chaos/proxy"
	"github.com/latchkey-go/latchkey/internal/chaos/worker"
	"github.com/latchkey-go/latchkey/internal/mariadbtest"
	"github.com/latchkey-go/latchkey/internal/pgtest"
	"github.com/latchkey-go/latchkey/internal/tidbtest"
	"github.com/latchkey-go/latchkey/sqllock"
)

// A Store says where the processes of a fleet keep their locks.
type Store string

// The stores.
const (
	Postgres      Store = "postgres"       // advisory locks
	Leases        Store = "leases"         // a lease table in PostgreSQL
	PooledLeases  Store = "pooled-leases"  // likewise, behind PgBouncer in transaction mode
	MariaDB       Store = "mariadb"        // GET_LOCK
	MariaDBLeases Store = "mariadb-leases" // a lease table in MariaDB
	SQLite        Store = "sqlite"         // a lease table in a file
	TiDB          Store = "tidb"           // a lease table in TiDB, with two servers
)

// Stores returns all stores that need no program of their own.
func Stores() []Store { return []Store{Postgres, Leases, PooledLeases, MariaDB, MariaDBLeases, SQLite} }

// Known reports an error if there is no such store.
func (s Store) Known() error {
	if all := append(Stores(), TiDB); !slices.Contains(all, s) {
		return fmt.Errorf("fleet: there is no store %q: it is one of %q", s, all)
	}
	return nil
}

// Leased reports whether locks are rows of a lease table. Such a lock outlives
// the connection that brought it, and its holder's process, until its lease has
// passed.
func (s Store) Leased() bool { return s != Postgres && s != MariaDB }

// Settings is the size of a fleet.
type Settings struct {
	Store     Store
	Processes int
	Callers   int // in each process
	Keys      int // that they want
	Mixed     int // further callers in each process, of readers, sets, limits and stacks
	Lease     time.Duration
	Dir       string // for histories
	Seed      uint64
	Old       string // program of package older; half of the processes run it
}

// A Fleet is for one goroutine, except for reading a process's status.
type Fleet struct {
	Settings
	DB      *sql.DB // an observer's, of the data behind the fence: a superuser, not behind a proxy
	Members []*Member

	Cluster *pgtest.Cluster     // nil if there is no PostgreSQL
	Pooler  *pgtest.Bouncer     // of PooledLeases
	MariaDB *mariadbtest.Server // of MariaDB and MariaDBLeases
	TiDB    *tidbtest.Server    // of TiDB
	LockDB  *sql.DB             // an observer's, of the locks; DB but for SQLite

	backend *backend
	standby *pgtest.Cluster
	rng     *rand.Rand
	started int // processes, ever
}

// A Member is a place for a process: when one ends, another takes its place.
type Member struct {
	Number  int
	Role    string       // of the database, an ordinary one
	Proxy   *proxy.Proxy // nil if there is no network
	Abrupt  bool         // its proxy's
	Process *worker.Process
	Old     bool // it runs Settings.Old
}

// A backend is what differs between stores. Of the queries, each with a %s takes
// a name, and is otherwise as it is.
type backend struct {
	address   func(member int) string           // where a member connects to, host:port; nil: there is no network
	configure func(m *Member, c *worker.Config) // sets the driver and the DSNs of m's process
	close     func() error                      // ends the server
	database  sqllock.Dialect                   // of the locks, and of the data behind the fence
	admit     []string                          // makes a role
	version   string                            // a query for the software's version
	software  string                            // and its name
	locks     string                            // lists the keys of all locks in force
	session   string                            // finds the number of the Session of a role; empty: it is that of the process
	locksOf   string                            // counts the locks, or the rows, of the Session with a number
	remains   string                            // counts what a process that has ended should not leave behind, other than locks
}

// Start starts a fleet and waits until every process serves.
func Start(ctx context.Context, set Settings) (f *Fleet, err error) {
	f = &Fleet{Settings: set, rng: rand.New(rand.NewPCG(set.Seed, 1))}
	defer func() {
		if err != nil {
			err = errors.Join(err, f.Close())
		}
	}()
	if err := errors.Join(f.Store.Known(), os.MkdirAll(set.Dir, 0o700)); err != nil {
		return f, err
	}
	start := f.startPostgres
	switch f.Store {
	case MariaDB, MariaDBLeases:
		start = f.startMariaDB
	case TiDB:
		start = f.startTiDB
	case SQLite:
		start = f.startSQLite
	}
	f.backend = new(backend)
	if err := start(ctx); err != nil {
		return f, fmt.Errorf("fleet: %w", err)
	}
	if err := errors.Join(f.Exec(ctx, worker.Tables()...), f.upgrade(ctx, f.Old)); err != nil {
		return f, err
	}
	for i := range set.Processes {
		m := &Member{
			Number: i + 1,
			Role:   fmt.Sprintf("member_%d", i+1),
			Abrupt: (i+1)%4 < 2, // of each driver one that is, and one that is not
			Old:    f.Old != "" && i < set.Processes/2,
		}
		if i > 0 && f.Members[i-1].Old && !m.Old {
			if err := f.upgrade(ctx, ""); err != nil {
				return f, err
			}
		}
		for _, statement := range f.backend.admit {
			if err := f.Exec(ctx, fmt.Sprintf(statement, m.Role)); err != nil {
				return f, err
			}
		}
		if f.backend.address != nil {
			if m.Proxy, err = proxy.Start(f.backend.address(m.Number), m.Abrupt); err != nil {
				return f, err
			}
		}
		f.Members = append(f.Members, m)
		if err := f.Replace(m); err != nil {
			return f, err
		}
	}
	return f, f.Serving(ctx, 30*time.Second)
}

// upgrade makes the tables that the kit of program needs and that are not there.
func (f *Fleet) upgrade(ctx context.Context, program string) error {
	schema, err := worker.SchemaOf(program, f.backend.database)
	if err != nil {
		return err
	}
	if f.Store != Postgres {
		err = exec(ctx, f.LockDB, schema.Locks)
	}
	return errors.Join(err, exec(ctx, f.DB, schema.Fence))
}

// Replace starts a process in m's place. That of before must have ended.
func (f *Fleet) Replace(m *Member) (err error) {
	f.started++
	c := worker.Config{
		Process: f.started,
		History: filepath.Join(f.Dir, fmt.Sprintf("process-%d.jsonl", f.started)),
		Lease:   f.Lease,
		Callers: f.Callers,
		Keys:    f.Keys,
		Mixed:   f.Mixed,
		Seed:    f.rng.Uint64(),

		Database: f.backend.database,
	}
	if m.Old {
		c.Program = f.Old
	}
	f.backend.configure(m, &c)
	m.Process, err = worker.Start(c)
	return err
}

// Kill kills m's process and starts another in its place.
func (f *Fleet) Kill(m *Member) error {
	if err := m.Process.Kill(); err != nil {
		return err
	}
	return f.Replace(m)
}

// Standby is a hot standby of the fleet's server, made at the first call.
func (f *Fleet) Standby() (standby *pgtest.Cluster, err error) {
	if f.standby == nil {
		f.standby, err = f.Cluster.Standby()
	}
	return f.standby, err
}

// Server is the address that m connects to, host:port.
func (f *Fleet) Server(m *Member) string { return f.backend.address(m.Number) }

// Version names the software that keeps the locks, with its version.
func (f *Fleet) Version(ctx context.Context) (version string, err error) {
	err = f.DB.QueryRowContext(ctx, f.backend.version).Scan(&version)
	return f.backend.software + " " + version, err
}

// Exec runs statements as the observer.
func (f *Fleet) Exec(ctx context.Context, statements ...string) error {
	return exec(ctx, f.DB, statements)
}

func exec(ctx context.Context, db *sql.DB, statements []string) error {
	for _, statement := range statements {
		if _, err := db.ExecContext(ctx, statement); err != nil {
			return fmt.Errorf("fleet: %w", err)
		}
	}
	return nil
}

// Close ends every process, proxy and server of the fleet, and leaves only
// histories.
func (f *Fleet) Close() error {
	var err error
	for _, m := range f.Members {
		if m.Process != nil {
			err = errors.Join(err, m.Process.Kill())
		}
		if m.Proxy != nil {
			m.Proxy.Close()
		}
	}
	for _, db := range []*sql.DB{f.DB, f.LockDB} {
		if db != nil {
			err = errors.Join(err, db.Close())
		}
	}
	if f.backend != nil && f.backend.close != nil {
		err = errors.Join(err, f.backend.close())
	}
	return err
}
