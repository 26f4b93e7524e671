package sqllock

import (
	"log/slog"
	"time"
)

// An InspectOption changes what [Inspect] and [Watch] do. Inspect heeds
// WithRegistrySchema only.
type InspectOption func(*inspectOptions)

type inspectOptions struct {
	schema    string // of the registry; empty: by the search_path
	interval  time.Duration
	late      time.Duration // 0: half the lease that a row tells of
	long      time.Duration // 0: no lock is held for too long
	terminate func(Finding) bool
	log       *slog.Logger
}

const defaultInterval = 5 * time.Second

// WithRegistrySchema says in which schema the tables of [HeartbeatSchema] are, spelt as in the
// catalog, without quotes. By default the search_path finds them. It panics if schema is empty.
func WithRegistrySchema(schema string) InspectOption {
	if schema == "" {
		panic("sqllock: WithRegistrySchema needs a schema's name")
	}
	return func(o *inspectOptions) { o.schema = schema }
}

// WithInterval sets how long Watch rests between two looks: 5 s by default. It panics if every is not positive.
func WithInterval(every time.Duration) InspectOption {
	if every <= 0 {
		panic("sqllock: WithInterval needs a positive duration")
	}
	return func(o *inspectOptions) { o.interval = every }
}

// WithLate sets how old the last heartbeat of a held lock may be before Watch
// calls it late. By default that is half of the lease of its Session: two and a half heartbeats, if
// WithHeartbeat was left alone. It panics if age is less than a microsecond.
func WithLate(age time.Duration) InspectOption {
	if age < time.Microsecond {
		panic("sqllock: WithLate needs a positive duration")
	}
	return func(o *inspectOptions) { o.late = age }
}

// WithLongHeld has Watch also report each lock that anybody holds for longer than
// limit, whether it is in the registry or not. It panics if limit is not positive.
//
// PostgreSQL does not tell since when a lock is held. The registry does; a lock that is not in it
// counts from Watch's first look at it, and one that its session gave back and took
// again between two looks counts as held all the time.
func WithLongHeld(limit time.Duration) InspectOption {
	if limit <= 0 {
		panic("sqllock: WithLongHeld needs a positive duration")
	}
	return func(o *inspectOptions) { o.long = limit }
}

// WithTerminate lets Watch end the server session (pg_terminate_backend) of a lock whose heartbeat
// is late, if should says so; it is asked at every look for as long as that is so. With the session go all
// locks of its process, or of that part of it that is on this connection. Without this option Watch ends
// nothing. It panics if should is nil.
//
// Whether it is still the same process, holds the lock, and is late is looked at again in the
// statement that ends it. The role must be that of the session or a member of it, or have
// pg_signal_backend; only a superuser ends a superuser's session.
func WithTerminate(should func(Finding) bool) InspectOption {
	if should == nil {
		panic("sqllock: WithTerminate needs a function that decides")
	}
	return func(o *inspectOptions) { o.terminate = should }
}

// WithWatchLogger sets where Watch says what it finds; slog.Default() is the default. Nothing logged
// holds a key, a name, a holder or a host. It panics if log is nil.
func WithWatchLogger(log *slog.Logger) InspectOption {
	if log == nil {
		panic("sqllock: WithWatchLogger needs a logger")
	}
	return func(o *inspectOptions) { o.log = log }
}

func newInspectOptions(opts []InspectOption) inspectOptions {
	o := inspectOptions{interval: defaultInterval, log: slog.Default()}
	for _, opt := range opts {
		opt(&o)
	}
	return o
}
