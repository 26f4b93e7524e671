package sqllock

import (
	"errors"
	"fmt"
	"log/slog"
	"net"
	"time"

	"github.com/latchkey-go/latchkey/internal/dialect"
	"github.com/latchkey-go/latchkey/internal/dialect/leasetable"
	"github.com/latchkey-go/latchkey/internal/dialect/mysql"
	"github.com/latchkey-go/latchkey/internal/dialect/postgres"
)

// An Option changes how [Open] or [PerTx] sets up a locker. PerTx heeds WithLease
// only.
type Option func(*options)

type options struct {
	lease     time.Duration
	leaseSet  bool
	heartbeat time.Duration
	beatSet   bool
	maxHeld   int
	maxConns  int
	perConn   int // locks held on a connection before another is opened
	async     bool
	lazy      bool
	named     Dialect
	table     bool            // WithLeaseTable
	dialect   dialect.Dialect // nil: what the database says that it is
	spread    bool            // more connections for more locks
	parting   time.Duration   // what the end of a connection may take
	socket    func(any) net.Conn
	log       *slog.Logger
	registry  *registryOptions // nil: without
	holder    string           // in the registry; "": host and process

	bootTime func() time.Duration // a clock that goes on while the system is suspended
}

// Defaults of the options.
const (
	defaultLease   = 10 * time.Second
	defaultMaxHeld = 4000
	minLease       = 2 * time.Second
	maxLease       = 24 * 24 * time.Hour // PostgreSQL counts milliseconds in 32 bits

	heldPerConn = 1000 // beyond it a statement's cost for locks already held shows

	// fullStatement is how many keys make up for what a statement costs by itself:
	// it is not held back for more to come, and twice as many may go in two.
	fullStatement = 48
)

// The clock assumptions behind the promise (docs/safety.md): how far the rates
// of two clocks differ, and, as a part of the lease, how much earlier than the
// server the client stops trusting its locks. Half of that margin is for a step
// of the server's clock (σ), the rest for what a timer is late.
const (
	clockDrift = 0.001 // ρ
	marginPart = 5     // m = lease/5
)

// WithLease sets the time after which the server frees the locks of a process
// that has gone silent: frozen, or cut off from the network. The process itself
// gives its locks up a fifth of the lease before that. The default is 10 s, on
// SQLite 5 s, the least 2 s, the most 24 days. MySQL and MariaDB count whole seconds. On a [TxLocker] it is the time that a lock's transaction may be
// idle, without end by default.
func WithLease(lease time.Duration) Option {
	return func(o *options) { o.lease, o.leaseSet = lease, true }
}

// WithHeartbeat sets how often a session that is otherwise idle speaks to the
// server. The default is a fifth of the lease. Three heartbeats must fit into
// four fifths of the lease, so that one lost or late does no harm.
func WithHeartbeat(every time.Duration) Option {
	return func(o *options) { o.heartbeat, o.beatSet = every, true }
}

// WithMaxHeld limits how many locks a Session holds at once, 4,000 by default.
// Beyond it TryLock fails with ErrCapacity.
//
// On PostgreSQL a Session keeps another limit by itself, with the same error. All
// clients of a server share its table of locks, and all fail when it is full. So
// a Session asks for no new key while the table is more than 60 % full. The table
// has max_locks_per_transaction × (max_connections + max_prepared_transactions)
// places: 6,400 by default, and so 3,840 for all Sessions together.
func WithMaxHeld(n int) Option {
	return func(o *options) { o.maxHeld = n }
}

// WithMaxConns limits the connections that a Session may keep. It uses one for
// each thousand locks held, so the default, 4, is enough for WithMaxHeld's. It
// leaves one of the pool's connections (SetMaxOpenConns) for the proof that it
// makes when it connects: a pool of 5 is enough for the default.
func WithMaxConns(n int) Option {
	return func(o *options) { o.maxConns = n }
}

// WithAsyncUnlock makes Unlock return without waiting for the database: a round
// trip less for each lock. The next request for the key in this process waits
// for the release all the same. A request in another process may be rejected
// while the release is on its way, also one that follows a whole HTTP response.
// A loss that shows only then is not reported by Unlock.
func WithAsyncUnlock() Option {
	return func(o *options) { o.async = true }
}

// WithLazyOpen lets Open succeed while the database is away: the Session goes
// on trying in the background and answers ErrUnavailable until it has
// connected. Without it Open fails. Open fails all the same with ErrNotExclusive
// and ErrConfig: waiting does not mend those.
func WithLazyOpen() Option {
	return func(o *options) { o.lazy = true }
}

// A Dialect names a kind of database for [WithDialect] and [Schema].
type Dialect string

// The dialects. Open finds out by itself which one a database is of.
const (
	PostgreSQL Dialect = "postgres" // PostgreSQL 14 or newer: advisory locks, or a lease table (WithLeaseTable)

	// SQLite 3.35 or newer, for the processes of one machine: a lease table, in a file whose journal Open sets to
	// write-ahead (WAL) for good. A file has one writer at a time: a transaction of the service's own that
	// writes, a fenced one among them, keeps calls for locks in the same file waiting, which fail with ErrUnavailable after
	// 0.9 s, and costs the locks if it lasts for four fifths of the lease. So keep the locks in a file of their
	// own beside the data, unless its transactions are short. Give the data's connections a busy_timeout.
	SQLite Dialect = "sqlite"

	MySQL Dialect = "mysql" // MySQL 8.0.16, MariaDB 10.5 or newer: GET_LOCK
)

// WithDialect says which kind of database db is, instead of having Open ask
// the database. The proof that locks exclude is still made. Open fails
// for a Dialect that is not a constant of this package.
func WithDialect(d Dialect) Option {
	return func(o *options) { o.named = d }
}

// WithLeaseTable has the Session keep its locks as rows of tables instead of advisory
// locks: for PostgreSQL behind a transaction pooler (PgBouncer and the like), and for
// CockroachDB and other systems that speak PostgreSQL's SQL and whose advisory locks do
// nothing. SQLite has no other way and needs no option.
//
// The Session borrows a connection of the pool for each statement, so a pool of one
// serves, and the locks outlive a connection or a restart of the server for as long as the lease.
// The tables are made by Open, in the first schema of the search_path, or before by
// [Schema]. pgx must not prepare statements: Open says so, and names the setting.
//
// Locks of a Session with WithLeaseTable and of one without it do not exclude
// each other: to change is a step for which all instances stop.
func WithLeaseTable() Option {
	return func(o *options) { o.table = true }
}

// WithSocket tells how to find the network connection under a connection of the
// driver in use: find gets what (*sql.Conn).Raw gives. It is needed only for a
// driver other than pgx/v5/stdlib, lib/pq and go-sql-driver/mysql, and lets the Session notice a
// closed connection at once instead of at the next heartbeat. find may return
// nil.
func WithSocket(find func(driverConn any) net.Conn) Option {
	return func(o *options) { o.socket = find }
}

// WithLogger sets where a Session reports that it lost or regained its
// connection; slog.Default() is the default. Nothing logged holds a key, a host
// or a connection string.
func WithLogger(log *slog.Logger) Option {
	if log == nil {
		panic("sqllock: WithLogger needs a logger")
	}
	return func(o *options) { o.log = log }
}

// newOptions applies opts to the defaults.
func newOptions(opts []Option) options {
	o := options{
		lease:    defaultLease,
		maxHeld:  defaultMaxHeld,
		maxConns: (defaultMaxHeld + heldPerConn - 1) / heldPerConn,
		perConn:  heldPerConn,
		spread:   true,
		parting:  100 * time.Millisecond,
		log:      slog.Default(),
		bootTime: bootTime,
	}
	for _, opt := range opts {
		opt(&o)
	}
	switch {
	case o.named == PostgreSQL && o.table:
		o.dialect = leasetable.PostgreSQL{}
	case o.named == PostgreSQL:
		o.dialect = postgres.Dialect{AnyVersionString: true}
	case o.named == SQLite:
		o.dialect = leasetable.SQLite{}
	case o.named == MySQL:
		o.dialect = mysql.Dialect{}
	}
	o.suit()
	return o
}

// suit sets what depends on the dialect, as far as it is known.
func (o *options) suit() {
	if o.dialect != nil {
		traits := o.dialect.Traits()
		o.spread, o.parting = traits.Spread, traits.CloseTimeout
		if !o.leaseSet {
			o.lease = traits.Lease
		}
	}
	if !o.beatSet {
		o.heartbeat = o.lease / 5
	}
}

// validate checks the numbers against each other.
func (o *options) validate() error {
	switch {
	case o.named != "" && o.dialect == nil:
		return errors.New("sqllock: WithDialect was given an unknown dialect: use a constant of this package")
	case o.named == MySQL && o.table:
		return errors.New("sqllock: WithLeaseTable is for PostgreSQL's SQL: leave it out for MySQL and MariaDB")
	case o.registry != nil && o.dialect != nil && !o.dialect.Traits().Registers:
		return fmt.Errorf("sqllock: WithRegistry is for PostgreSQL's advisory locks: leave it out: %w", errors.ErrUnsupported)
	case o.lease < minLease:
		return fmt.Errorf("sqllock: the lease of %v is too short for clock steps and a slow network: use %v or more", o.lease, minLease)
	case o.lease > maxLease:
		return fmt.Errorf("sqllock: the lease of %v is too long: use %v or less", o.lease, maxLease)
	case o.heartbeat <= 0:
		return errors.New("sqllock: the heartbeat must be positive")
	case (o.leaseSet || o.dialect != nil) && o.trust() <= 3*o.heartbeat: // else the lease is not known yet
		return fmt.Errorf("sqllock: a heartbeat of %v is too slow for a lease of %v: use %v or less", o.heartbeat, o.lease, (o.trust()/3 - 1).Truncate(time.Millisecond))
	case o.maxHeld <= 0:
		return errors.New("sqllock: WithMaxHeld needs a positive number")
	case o.maxConns <= 0:
		return errors.New("sqllock: WithMaxConns needs a positive number")
	}
	return nil
}

// trust is how long after sending a statement that was answered the locks are
// certainly held: T(1−ρ) − m.
func (o *options) trust() time.Duration {
	return o.lease - time.Duration(clockDrift*float64(o.lease)) - o.lease/marginPart
}
