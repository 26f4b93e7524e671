package lockwatch

import (
	"log/slog"
	"time"
)

// An InspectOption changes what [Inspect] does. It is an option of [Watch] too.
type InspectOption interface {
	WatchOption
	setInspect(o *inspectOptions)
}

// A WatchOption changes what [Watch] does.
type WatchOption interface{ setWatch(o *watchOptions) }

type inspectOptions struct {
	schema  string // of the registry's and the lease tables; empty: the search_path finds them
	noNames bool
}

type watchOptions struct {
	inspectOptions

	interval  time.Duration
	late      time.Duration // 0: half of the lease in each row
	long      time.Duration // 0: no limit
	terminate func(Finding) bool
	log       *slog.Logger
}

type inspectOption func(*inspectOptions)

func (f inspectOption) setInspect(o *inspectOptions) { f(o) }
func (f inspectOption) setWatch(o *watchOptions)     { f(&o.inspectOptions) }

type watchOption func(*watchOptions)

func (f watchOption) setWatch(o *watchOptions) { f(o) }

const defaultInterval = 5 * time.Second

// WithSchema names the database schema that holds the tables of [Schema], and the
// lease tables if it has some. Spell it as the catalog does, without quotes.
// Without this option the search_path finds the tables. WithSchema is for
// PostgreSQL, and has no effect elsewhere.
//
// A table that the search_path finds is read only if its owner is this role, the
// owner of the database or a superuser. In a named schema every owner is trusted.
//
// WithSchema panics if schema is empty.
func WithSchema(schema string) InspectOption {
	if schema == "" {
		panic("lockwatch: WithSchema needs a schema's name")
	}
	return inspectOption(func(o *inspectOptions) { o.schema = schema })
}

// WithoutNames leaves out what clients have written about themselves: names,
// holders, applications and addresses. Namespaces stay. An application is then
// "latchkey" if it is that of a Session, and empty otherwise.
func WithoutNames() InspectOption {
	return inspectOption(func(o *inspectOptions) { o.noNames = true })
}

// WithInterval sets the pause between two looks of Watch. The default is 5
// seconds. Each look reads the server's lock table, and PostgreSQL makes all other
// lock operations wait for that moment.
//
// WithInterval panics if every is not positive.
func WithInterval(every time.Duration) WatchOption {
	if every <= 0 {
		panic("lockwatch: WithInterval needs a positive duration")
	}
	return watchOption(func(o *watchOptions) { o.interval = every })
}

// WithLate sets the age at which Watch calls the heartbeat of a held lock late.
// Its server process must also have been idle for that long. The default is half
// of the lease of the lock's Session. That is two and a half heartbeats, unless
// [sqllock.WithHeartbeat] says otherwise.
//
// In a lease table age counts from the last renewal, as far as Watch can tell. The
// table has the end of a lease and not its length. Watch learns that from what it
// sees, and it may be up to a heartbeat too short.
//
// An age below the heartbeat makes every idle Session late, and WithTerminate may
// end it. With an age above the lease Watch finds nothing late, because the
// server ends the session before.
//
// WithLate panics if age is below one microsecond.
func WithLate(age time.Duration) WatchOption {
	if age < time.Microsecond {
		panic("lockwatch: WithLate needs a positive duration")
	}
	return watchOption(func(o *watchOptions) { o.late = age })
}

// WithLongHeld makes Watch report each lock that is held for longer than limit,
// whether the registry knows it or not. Without this option Watch reports none.
//
// The registry says since when a lock is held. PostgreSQL does not: a lock that is
// not in the registry counts from the first look that finds it. If its session
// released it and took it again between two looks, it counts as held throughout.
// A lease table has the time, too; the locks of MySQL count like those that are
// not in the registry.
// The lock under which Watch itself runs counts too.
//
// WithLongHeld panics if limit is not positive.
func WithLongHeld(limit time.Duration) WatchOption {
	if limit <= 0 {
		panic("lockwatch: WithLongHeld needs a positive duration")
	}
	return watchOption(func(o *watchOptions) { o.long = limit })
}

// WithTerminate lets Watch end the server session of a [LateHeartbeat] if should
// returns true for it. Watch calls pg_terminate_backend. Every lock on that
// connection ends with the session. Without this option Watch ends no session.
// WithTerminate is for the advisory locks of PostgreSQL, and has no effect on
// others. A lease ends by itself. On MariaDB and MySQL nothing shows that a
// session is late, so Watch never KILLs a connection.
//
// Watch calls should only after it has itself seen the session silent for the age
// of WithLate. That takes at least two looks and counts by the clock of this
// process. Then Watch calls should at every look until the silence ends. The
// statement that ends the session checks once more that it is the same process,
// and that it has been silent since the look.
//
// The role of Watch must be the role of the session, a member of it, or a member
// of pg_signal_backend. Only a superuser can end the session of a superuser.
//
// A role that may write latchkey_heartbeats can make a silent session that holds
// an advisory lock look late. Grant INSERT and UPDATE to the roles of Sessions
// only.
//
// WithTerminate panics if should is nil.
func WithTerminate(should func(Finding) bool) WatchOption {
	if should == nil {
		panic("lockwatch: WithTerminate needs a function that decides")
	}
	return watchOption(func(o *watchOptions) { o.terminate = should })
}

// WithLogger sets the logger of Watch. The default is slog.Default(). No log line
// holds a key, a name, a holder or a host.
//
// WithLogger panics if log is nil.
func WithLogger(log *slog.Logger) WatchOption {
	if log == nil {
		panic("lockwatch: WithLogger needs a logger")
	}
	return watchOption(func(o *watchOptions) { o.log = log })
}

func newWatchOptions(opts []WatchOption) watchOptions {
	o := watchOptions{interval: defaultInterval, log: slog.Default()}
	for _, opt := range opts {
		opt.setWatch(&o)
	}
	return o
}
