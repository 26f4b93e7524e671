package sqllock

import (
	"errors"
	"fmt"
	"log/slog"
	"net"
	"time"

	"github.com/latchkey-go/latchkey/internal/bound"
	"github.com/latchkey-go/latchkey/internal/dialect"
	"github.com/latchkey-go/latchkey/internal/dialect/leasetable"
	"github.com/latchkey-go/latchkey/internal/dialect/mysql"
	"github.com/latchkey-go/latchkey/internal/dialect/postgres"
)

// The options of Open, their defaults, and the checks of one against the other.

// An Option changes what [Open] or [PerTx] sets up. PerTx uses WithLease only.
type Option func(*options)

// WithDialect sets which kind of database db is, so that Open does not detect
// it. Open still proves that locks exclude. It returns an error for a Dialect
// that is not a constant of this package.
//
// With MySQL the caller also says that all processes connect to this server.
// Open then accepts a server of MariaDB that replicates from another one, which
// it would reject as a replica.
func WithDialect(d Dialect) Option {
	return func(o *options) { o.named = d }
}

// WithLease sets the time after which the server frees the locks of a silent
// process, one that is frozen or cut off from the network. The process itself
// gives its locks up a fifth of the lease earlier.
//
// The default is 10 s, and 5 s on SQLite. The lease is at least 2 s and at most
// 24 days. MySQL and MariaDB count whole seconds. On a [TxLocker] the lease is
// the time that the transaction of a lock may be idle. It has no end by
// default.
func WithLease(lease time.Duration) Option {
	return func(o *options) { o.lease, o.leaseSet = lease, true }
}

// WithHeartbeat sets how often an idle Session sends a statement to the server.
// The default is a fifth of the lease. Three heartbeats must fit into four
// fifths of the lease, so that one may be lost or late.
func WithHeartbeat(every time.Duration) Option {
	return func(o *options) { o.heartbeat, o.beatSet = every, true }
}

// WithMaxHeld limits how many locks a Session holds at once, 4,000 by default.
// Beyond the limit TryLock returns ErrCapacity.
//
// On PostgreSQL a Session has another limit, with the same error. All clients
// of a server share its table of locks, and all fail when it is full. So a
// Session requests no new key while the table is more than 60 % full. The table
// has max_locks_per_transaction × (max_connections + max_prepared_transactions)
// places. By default these are 6,400, of which all Sessions together use 3,840.
func WithMaxHeld(n int) Option {
	return func(o *options) { o.maxHeld = n }
}

// WithMaxConns limits the connections of a Session, 4 by default. A Session
// uses one for each thousand locks held, so the default is enough for that of
// WithMaxHeld.
//
// A Session needs one more connection of the pool (SetMaxOpenConns) while it
// connects, to prove that locks exclude. A pool of 5 is enough for the default.
func WithMaxConns(n int) Option {
	return func(o *options) { o.maxConns = n }
}

// WithAsyncUnlock makes Unlock return without waiting for the database, which
// saves a round trip for each lock. In this process the next request for the
// key takes it over, or waits for the release if that is sent. Another process
// may be rejected while the release is on its way, even after it has received
// the whole HTTP response.
// Unlock does not report a loss that shows only then.
func WithAsyncUnlock() Option {
	return func(o *options) { o.async = true }
}

// WithLazyOpen lets Open succeed while the database is away. The Session tries
// again in the background, and its calls return ErrUnavailable until it has
// connected. Open still returns ErrNotExclusive and ErrConfig, since waiting
// does not help there.
func WithLazyOpen() Option {
	return func(o *options) { o.lazy = true }
}

// WithLeaseTable makes the Session keep its locks as rows of tables instead of
// advisory locks. It is for PostgreSQL behind a transaction pooler such as
// PgBouncer. It is also for systems that speak PostgreSQL's SQL and whose
// advisory locks do nothing, such as CockroachDB. SQLite needs no option.
//
// The Session borrows a connection of the pool for each statement, so a pool of
// one is enough. The locks outlive a connection or a restart of the server, up
// to the lease. Open creates the tables in the first schema of the search_path,
// if [Schema] has not created them. pgx must not prepare statements: Open
// returns an error that names the setting.
//
// Locks of a Session with WithLeaseTable and of one without it do not exclude
// each other. Stop all instances before you change this option.
func WithLeaseTable() Option {
	return func(o *options) { o.table = true }
}

// WithSocket sets the function that finds the network connection under a
// connection of the driver. Its argument is that of (*sql.Conn).Raw, and it may
// return nil. With it the Session notices a closed connection at once, and
// otherwise at the next heartbeat. The drivers pgx/v5/stdlib, lib/pq and
// go-sql-driver/mysql do not need it.
func WithSocket(find func(driverConn any) net.Conn) Option {
	return func(o *options) { o.socket = find }
}

// WithLogger sets the logger to which a Session reports that it lost or
// regained its connection. The default is slog.Default(). No log line holds a
// key, a host or a connection string.
func WithLogger(log *slog.Logger) Option {
	if log == nil {
		panic("sqllock: WithLogger needs a logger")
	}
	return func(o *options) { o.log = log }
}

// options are the options of a Session. Open copies them into the Session. Only
// suit changes them after that, while the Session learns its dialect.
type options struct {
	lease        time.Duration
	leaseSet     bool
	heartbeat    time.Duration
	beatSet      bool
	maxHeld      int
	maxConns     int
	perConn      int // locks held on a connection before another is opened; 0: none is
	async        bool
	lazy         bool
	idleClose    time.Duration // 0: not at all
	named        Dialect
	table        bool            // WithLeaseTable
	dialect      dialect.Dialect // nil: what the database says that it is
	closeTimeout time.Duration   // what the end of a connection may take
	timeout      time.Duration   // answerTimeout, or longer in tests
	socket       func(any) net.Conn
	log          *slog.Logger
	observers    observers
	registry     *registryOptions // nil: without
	holder       string           // in the registry; "": host and process

	bootTime func() time.Duration // a clock that goes on while the system is suspended
}

// Defaults of the options.
const (
	defaultLease   = 10 * time.Second
	defaultMaxHeld = 4000
	minLease       = 2 * time.Second
	maxLease       = 24 * 24 * time.Hour // PostgreSQL counts milliseconds in 32 bits

	// fullStatement is how many keys make up for what a statement costs by itself.
	// Such a statement is not held back for more keys, and twice as many may go in
	// two.
	fullStatement = 48
)

// The clock assumptions behind the promise (docs/safety.md). The rates of two
// clocks differ by at most clockDrift. The client stops trusting its locks
// earlier than the server, by a marginPart of the lease. Half of that margin is
// for a step of the server's clock (σ), and half for late timers.
const (
	clockDrift = 0.001 // ρ
	marginPart = 5     // m = lease/5
)

// answerTimeout is how long the database may leave callers without an answer
// before they get ErrUnavailable.
const answerTimeout = 900 * time.Millisecond

// minIdleClose is the least of WithIdleClose. To open a connection takes several
// round trips and a login, which no caller should pay at each request.
const minIdleClose = time.Second

// registryOptions are those of WithRegistry.
type registryOptions struct{ schema string }

// newOptions applies opts to the defaults.
func newOptions(opts []Option) options {
	o := options{
		lease:        bound.Of(defaultLease),
		maxHeld:      defaultMaxHeld,
		maxConns:     (defaultMaxHeld + dialect.HeldPerConnection - 1) / dialect.HeldPerConnection,
		perConn:      dialect.HeldPerConnection,
		closeTimeout: 100 * time.Millisecond,
		log:          slog.Default(),
		bootTime:     bootTime,
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
		o.dialect = mysql.Dialect{Named: true}
	}
	o.suit()
	return o
}

// suit sets what depends on the dialect, as far as it is known.
func (o *options) suit() {
	if o.dialect != nil {
		traits := o.dialect.Traits()
		o.perConn, o.closeTimeout = traits.HeldPerSession, traits.CloseTimeout
		if machine, ok := o.dialect.(dialect.BootClock); ok {
			o.bootTime = machine.BootTime
		}
		if !o.leaseSet {
			o.lease = bound.Of(traits.Lease)
		}
	}
	o.timeout = o.bound(answerTimeout)
	if !o.beatSet {
		o.heartbeat = o.lease / 5
	}
}

// validate reports options that are out of range, that contradict each other,
// or that the dialect does not support.
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
	case (o.leaseSet || o.dialect != nil) && o.validFor() <= 3*o.heartbeat: // else the lease is not known yet
		return fmt.Errorf("sqllock: a heartbeat of %v is too slow for a lease of %v: use %v or less", o.heartbeat, o.lease, (o.validFor()/3 - 1).Truncate(time.Millisecond))
	case o.idleClose != 0 && o.idleClose < minIdleClose:
		return fmt.Errorf("sqllock: WithIdleClose of %v would open a connection for nearly every call: use %v or more", o.idleClose, minIdleClose)
	case o.maxHeld <= 0:
		return errors.New("sqllock: WithMaxHeld needs a positive number")
	case o.maxConns <= 0:
		return errors.New("sqllock: WithMaxConns needs a positive number")
	}
	return nil
}

// bound returns d, or more in tests on a busy machine. The bounds of a Session
// whose lease the test has made short stay short too.
func (o *options) bound(d time.Duration) time.Duration {
	if o.leaseSet && o.lease < bound.Of(minLease) {
		return d
	}
	return bound.Of(d)
}

// validFor is how long after sending a statement that was answered the locks
// are certainly held: T(1−ρ) − m.
func (o *options) validFor() time.Duration {
	return o.lease - time.Duration(clockDrift*float64(o.lease)) - o.lease/marginPart
}
