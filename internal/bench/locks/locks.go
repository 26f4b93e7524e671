// Package locks has the contenders of the benchmarks: this kit's way to acquire
// and release the lock of a name, and the ways that people use instead. Each is
// set up as its own documentation says.
package locks

import (
	"context"
	"errors"
)

// ErrBusy is Acquire's error while another caller holds the name.
var ErrBusy = errors.New("busy")

// Locks takes locks on names. Its methods may be called at once from several
// goroutines.
type Locks interface {
	// Acquire takes the lock on name, or answers ErrBusy at once.
	Acquire(ctx context.Context, name string) (Held, error)

	// Close gives back all connections.
	Close() error
}

// Held is a lock that was taken.
type Held interface {
	// Release gives it back, and returns when the others can have it.
	Release(ctx context.Context) error
}

// A Contender is a way to lock, before it is set up.
type Contender struct {
	Name   string // in tables and legends
	Family Family
	Driver string // "pgx" or "lib/pq", for comparisons on the same driver; "" for Redis

	// Open sets it up for so many callers.
	Open func(ctx context.Context, env Env, callers int) (Locks, error)
}

// Family is the kind of a contender: ratios compare families.
type Family string

// The families.
const (
	Kit           Family = "this kit"
	PerConnection Family = "one pooled connection per lock"
	Transaction   Family = "advisory transaction lock"
	LeaseRow      Family = "lease row"
	Redis         Family = "Redis"
)

// Env is where the servers are.
type Env struct {
	Postgres string // DSN
	Redis    string // host:port
}
