package lockwatch

import (
	"log/slog"
	"time"
)

// An InspectOption changes what [Inspect] does, and is one of [Watch] too.
type InspectOption interface {
	WatchOption
	setInspect(o *inspectOptions)
}

// A WatchOption changes what [Watch] does.
type WatchOption interface{ setWatch(o *watchOptions) }

type inspectOptions struct {
	schema string // of the registry; empty: by the search_path
}

type watchOptions struct {
	inspectOptions

	interval  time.Duration
	late      time.Duration // 0: half the lease that a row tells of
	long      time.Duration // 0: no lock is held for too long
	terminate func(Finding) bool
	log       *slog.Logger
}

type inspectOption func(*inspectOptions)

func (f inspectOption) setInspect(o *inspectOptions) { f(o) }
func (f inspectOption) setWatch(o *watchOptions)     { f(&o.inspectOptions) }

type watchOption func(*watchOptions)

func (f watchOption) setWatch(o *watchOptions) { f(o) }

const defaultInterval = 5 * time.Second

// WithSchema says in which schema the tables of [Schema] are, spelt as in the
// catalog, without quotes. To name it is to trust who owns them. By default the search_path finds them, if they
// belong to this role, the database's owner or a superuser. It panics if schema is empty.
func WithSchema(schema string) InspectOption {
	if schema == "" {
		panic("lockwatch: WithSchema needs a schema's name")
	}
	return inspectOption(func(o *inspectOptions) { o.schema = schema })
}

// WithInterval sets how long Watch rests between two looks: 5 s by default. Each look reads the server's table of locks,
// for which all who lock wait a moment. It panics if every is not positive.
func WithInterval(every time.Duration) WatchOption {
	if every <= 0 {
		panic("lockwatch: WithInterval needs a positive duration")
	}
	return watchOption(func(o *watchOptions) { o.interval = every })
}

// WithLate sets how old the last heartbeat of a held lock may be, and for how long its server process may have had
// nothing to do, before Watch calls it late. By default that is half of the lease of its Session: two and a half
// heartbeats, if WithHeartbeat was left alone. It panics if age is less than a microsecond.
//
// With less than a heartbeat every idle Session is late between two of them, and with WithTerminate is ended; with
// more than the lease none is, since the server ends it before.
func WithLate(age time.Duration) WatchOption {
	if age < time.Microsecond {
		panic("lockwatch: WithLate needs a positive duration")
	}
	return watchOption(func(o *watchOptions) { o.late = age })
}

// WithLongHeld has Watch also report each lock that anybody holds for longer than
// limit, whether it is in the registry or not. It panics if limit is not positive.
//
// PostgreSQL does not tell since when a lock is held. The registry does; a lock that is not in it
// counts from Watch's first look at it, and one that its session gave back and took
// again between two looks counts as held all the time. The lock that Watch itself runs under counts too.
func WithLongHeld(limit time.Duration) WatchOption {
	if limit <= 0 {
		panic("lockwatch: WithLongHeld needs a positive duration")
	}
	return watchOption(func(o *watchOptions) { o.long = limit })
}

// WithTerminate lets Watch end the server session (pg_terminate_backend) of a lock whose heartbeat
// is late ([LateHeartbeat], not [RegistryNotWritten]), if should says so. It is asked once Watch has seen for the age of
// WithLate, by this process's clock and at two looks at least, that neither a heartbeat came nor the session did
// anything, and from then on at every look for as long as that is so. With the session go all locks of its process, or
// of that part of it that is on this connection. Without this option Watch ends nothing. It panics if should is nil.
//
// Whether it is still the same process, holds the lock, and is late and silent is looked at again in the
// statement that ends it. The role must be that of the session or a member of it, or have
// pg_signal_backend; only a superuser ends a superuser's session.
//
// Who may write latchkey_heartbeats decides, with should, who may be ended: of sessions that hold an advisory lock and are
// silent, those that he says have promised a heartbeat. Give INSERT and UPDATE on it to the roles of Sessions only.
func WithTerminate(should func(Finding) bool) WatchOption {
	if should == nil {
		panic("lockwatch: WithTerminate needs a function that decides")
	}
	return watchOption(func(o *watchOptions) { o.terminate = should })
}

// WithLogger sets where Watch says what it finds; slog.Default() is the default. Nothing logged
// holds a key, a name, a holder or a host. It panics if log is nil.
func WithLogger(log *slog.Logger) WatchOption {
	if log == nil {
		panic("lockwatch: WithLogger needs a logger")
	}
	return watchOption(func(o *watchOptions) { o.log = log })
}

func newInspectOptions(opts []InspectOption) (o inspectOptions) {
	for _, opt := range opts {
		opt.setInspect(&o)
	}
	return o
}

func newWatchOptions(opts []WatchOption) watchOptions {
	o := watchOptions{interval: defaultInterval, log: slog.Default()}
	for _, opt := range opts {
		opt.setWatch(&o)
	}
	return o
}
