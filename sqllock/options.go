package sqllock

import (
	"errors"
	"log/slog"
	"net"
	"time"

	"github.com/latchkey-go/latchkey/internal/dialect/leasetable"
	"github.com/latchkey-go/latchkey/internal/dialect/mysql"
	"github.com/latchkey-go/latchkey/internal/dialect/postgres"
	"github.com/latchkey-go/latchkey/internal/session"
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
// The default is 10 s, 5 s on SQLite, and 30 s on TiDB without WithDialect. It is
// at least 2 s and at most 24 days. MySQL and MariaDB count whole seconds. On a
// [TxLocker] the lease is the time that the transaction of a lock may be idle.
// It has no end by default.
func WithLease(lease time.Duration) Option {
	return func(o *options) { o.Lease, o.LeaseSet = lease, true }
}

// WithHeartbeat sets how often an idle Session sends a statement to the server.
// The default is a fifth of the lease. Three heartbeats must fit into four
// fifths of the lease, so that one may be lost or late.
func WithHeartbeat(every time.Duration) Option {
	return func(o *options) { o.Heartbeat, o.BeatSet = every, true }
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
	return func(o *options) { o.MaxHeld = n }
}

// WithMaxConns limits the connections of a Session. It uses one for each
// thousand locks held, and the default is enough for WithMaxHeld: 4 for 4,000.
//
// A Session needs one more connection of the pool (SetMaxOpenConns) while it
// connects, to prove that locks exclude. A pool of 5 is enough for the default.
func WithMaxConns(n int) Option {
	return func(o *options) {
		o.MaxConns = n
		if n <= 0 {
			o.MaxConns = -1
		}
	}
}

// WithAsyncUnlock makes Unlock return without waiting for the database, which
// saves a round trip for each lock. In this process the next request for the
// key takes it over, or waits for the release if that is sent. Another process
// may be rejected while the release is on its way, even after it has received
// the whole HTTP response.
// Unlock does not report a loss that shows only then.
func WithAsyncUnlock() Option {
	return func(o *options) { o.AsyncUnlock = true }
}

// WithLazyOpen lets Open succeed while the database is away. The Session tries
// again in the background, and its calls return ErrUnavailable until it has
// connected. Open still returns ErrNotExclusive and ErrConfig, since waiting
// does not help there.
func WithLazyOpen() Option {
	return func(o *options) { o.Lazy = true }
}

// WithLeaseTable makes the Session keep its locks as rows of tables instead of
// advisory locks, or those of GET_LOCK. It is for a database behind a pooler or
// proxy that shares the server's connections, such as PgBouncer. It is also for
// TiDB, and for systems that speak PostgreSQL's SQL and whose advisory locks do
// nothing, such as CockroachDB. SQLite needs no option.
//
// The Session borrows a connection of the pool for each statement, so a pool of
// one is enough. The locks outlive a connection or a restart of the server, up
// to the lease. Open creates the tables if [Schema] has not created them: in the
// first schema of PostgreSQL's search_path, or in the database that the DSN of
// MySQL names. pgx must not prepare statements: Open returns an error that names
// the setting.
//
// Locks of a Session with WithLeaseTable and of one without it do not exclude
// each other. Stop all instances before you change this option.
func WithLeaseTable() Option {
	return func(o *options) { o.Table = true }
}

// WithSocket sets the function that finds the network connection under a
// connection of the driver. Its argument is that of (*sql.Conn).Raw, and it may
// return nil. With it the Session notices a closed connection at once, and
// otherwise at the next heartbeat. The drivers pgx/v5/stdlib, lib/pq and
// go-sql-driver/mysql do not need it.
func WithSocket(find func(driverConn any) net.Conn) Option {
	return func(o *options) { o.Socket = find }
}

// WithLogger sets the logger to which a Session reports that it lost or
// regained its connection. The default is slog.Default(). No log line holds a
// key, a host or a connection string.
func WithLogger(log *slog.Logger) Option {
	if log == nil {
		panic("sqllock: WithLogger needs a logger")
	}
	return func(o *options) { o.Log = log }
}

// WithObserver has o told what happens to the connections of the Session. It
// may be given several times, and each Observer is told.
func WithObserver(o Observer) Option {
	return func(opts *options) { opts.Observers = append(opts.Observers, session.Observer(o)) }
}

// An Observer is told what happens to the connections of a [Session], for
// metrics and logs. Each func may be nil.
//
// A connection calls the funcs one after the other, and sends nothing meanwhile.
// So they must not block or panic, and must not acquire or unlock a lock. They
// may call Stats and Connections. Several connections may call them at the same
// time. They get no key.
type Observer struct {
	// Exchanged: the database has answered a statement, which took so long and
	// requested or released so many keys. A heartbeat has none. Of a batch that the
	// server has rejected, took is that of asking what the Session still holds. These
	// are the statements of [Stats].Exchanges.
	Exchanged func(took time.Duration, keys int)

	// Connected: a connection is open, and takes locks from now on.
	Connected func()

	// Lost: a connection was lost, with so many locks. cause is one of the words
	// of [Stats].LossesBy. The holders of the locks have been told before.
	Lost func(cause string, locks int)
}

// WithRegistry makes the Session record, for people, which locks it holds and
// for which keys its callers wait. The functions lockwatch.Inspect and
// lockwatch.Watch read this.
//
// It also records a wait in LockTx in the same database, if the caller's context
// carries a lock of the Session. Such a wait costs three statements.
//
// The records go into the tables of lockwatch.Schema, in the schema of this
// name, spelt as in the catalog. If it is empty, the search_path finds them.
// The role needs SELECT, INSERT, UPDATE and DELETE on them. Open fails if they
// are missing or the role may not write to them. A later connection of
// WithLazyOpen logs this.
//
// The registry never costs a lock. A failed write is logged and repeated with
// the next heartbeat. A write comes with each heartbeat, in the same round
// trip, and does not wait for the disk. It contains only what has been held, or
// waited for, as long as a heartbeat. A few such locks cost as much as some
// tens of acquisitions. A thousand take the connection about 20 ms. A name is
// written only for a lock that has one: see [Lock.SetName].
//
// WithRegistry is for PostgreSQL's advisory locks. Elsewhere Open returns an
// error that matches errors.ErrUnsupported. In a lease table every lock is a
// row already.
func WithRegistry(schema string) Option {
	return func(o *options) { o.Registry, o.Schema = true, schema }
}

// WithHolder sets the name under which a Session appears in the registry of
// [WithRegistry]. The default consists of its host and process.
func WithHolder(text string) Option {
	return func(o *options) { o.HolderName = text }
}

// WithIdleClose makes a Session close its connection after it has had no lock
// for d, so that a serverless database can suspend. It closes with the first
// heartbeat after d. The next call opens it again. d is at least a second.
//
// A Session has no lock while none is held, requested or waited for. A campaign
// of package election always holds or waits, so it keeps the connection open. A
// heartbeat does not.
//
// The close costs no caller anything but time. It is no loss: no lock ends, and
// Stats counts none. A call that opens the connection waits as it would after a
// loss: TryLock returns ErrUnavailable after 0.9 s, and opening goes on. So use
// Lock for a database that needs longer to start.
// Each connection proves again that locks exclude.
//
// Use a *sql.DB of its own with SetConnMaxIdleTime, since the proof leaves a
// connection in the pool. [Stats].IdleClosed tells a closed connection from a
// database that is away.
//
// WithIdleClose panics if d is not positive. Open returns an error if d is less
// than a second.
func WithIdleClose(d time.Duration) Option {
	if d <= 0 {
		panic("sqllock: WithIdleClose needs a positive duration")
	}
	return func(o *options) { o.IdleClose = d }
}

// options are what Options set.
type options struct {
	session.Options
	named Dialect
	err   error // of a choice that no database supports
}

// newOptions applies opts to the defaults.
func newOptions(opts []Option) options {
	o := options{Options: session.Defaults()}
	o.NewHold = newHold
	for _, opt := range opts {
		opt(&o)
	}
	switch {
	case o.named == PostgreSQL && o.Table:
		o.Options.Dialect = leasetable.PostgreSQL{}
	case o.named == PostgreSQL:
		o.Options.Dialect = postgres.Dialect{AnyVersionString: true}
	case o.named == SQLite:
		o.Options.Dialect = leasetable.SQLite{}
	case o.named == MySQL && o.Table:
		o.Options.Dialect = leasetable.MySQL{MayBeFed: true}
	case o.named == MySQL:
		o.Options.Dialect = mysql.Dialect{Named: true}
	case o.named != "":
		o.err = errors.New("sqllock: WithDialect was given an unknown dialect: use a constant of this package")
	}
	o.Suit()
	return o
}
