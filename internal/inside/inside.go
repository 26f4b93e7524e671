// Package inside is how one package of this module calls what another one does
// not export: ratelimit calls sqllock, and the middleware calls ratelimit.
//
// A type of the API embeds a type of this package, under an unexported name.
// Its documentation shows nothing of that, and only the functions here reach
// it. A program's own type that embeds the type of the API has it too.
package inside

import (
	"context"
	"reflect"
	"sync/atomic"
	"time"

	"github.com/latchkey-go/latchkey/internal/keytable"
)

// IsNil reports whether a Locker is nil, or, say, the *Session of an Open whose
// error was ignored.
func IsNil(locker any) bool {
	v := reflect.ValueOf(locker)
	return !v.IsValid() || v.Kind() == reflect.Pointer && v.IsNil()
}

// Groups is in a Locker that acquires one key of each of several groups in one
// call, or none. Lockers with the same *Groups share that call.
type Groups struct{ tryEach any }

// A tryEach acquires one key of each group, or none. Key and Locks are those of
// package sqllock, which this package cannot import.
type tryEach[Key, Locks any] = func(ctx context.Context, groups [][]Key) (Locks, error)

// GroupsBy returns the Groups of a Locker that acquires them by f.
func GroupsBy[Key, Locks any](f tryEach[Key, Locks]) Groups { return Groups{f} }

func (g *Groups) groups() *Groups { return g }

// GroupsOf returns the Groups of locker, or nil if it has none.
func GroupsOf(locker any) *Groups {
	if l, ok := locker.(interface{ groups() *Groups }); ok {
		return l.groups()
	}
	return nil
}

// TryEach acquires one key of each group, or none. Locks are in the order of
// groups. If no key of a group is free, the error is a *[FullError]. There is a
// group at least, each with a key at least. The keys of a group are never changed
// later.
//
// The groups are tried in their order, so all callers should have one order.
func TryEach[Key, Locks any](ctx context.Context, g *Groups, groups [][]Key) (Locks, error) {
	return g.tryEach.(tryEach[Key, Locks])(ctx, groups)
}

// A FullError reports which group of TryEach had no free key. It matches
// sqllock.ErrHeld.
type FullError = keytable.FullError

// Detachable is in a sqllock.Lock.
type Detachable struct{ detached atomic.Bool }

func (d *Detachable) detachable() *Detachable { return d }

// Detach makes Bind of lock ignore the lock from now on. It is for a dry run,
// whose locks must not affect any request.
func Detach(lock interface{ detachable() *Detachable }) { lock.detachable().detached.Store(true) }

// IsDetached reports whether there was a Detach.
func IsDetached(d *Detachable) bool { return d.detached.Load() }

// Limit is in a ratelimit.Limiter.
type Limit struct {
	refuse     func(ctx context.Context, err error) error
	carried    func(ctx context.Context, id string) bool
	figures    func() Figures
	acquireAll any // an acquireAll
}

// An acquireAll is ratelimit.AcquireAll, which calls waits before it waits.
// Level is that of ratelimit, which this package cannot import.
type acquireAll[Level, Locks any] = func(ctx context.Context, levels []Level, waits func(context.Context)) (Locks, error)

// A Limiter is a *ratelimit.Limiter.
type Limiter interface{ limit() *Limit }

// LimitBy returns the Limit of a Limiter with these methods.
func LimitBy[Level, Locks any](
	refuse func(context.Context, error) error, carried func(context.Context, string) bool, figures func() Figures, all acquireAll[Level, Locks],
) Limit {
	return Limit{refuse, carried, figures, all}
}

// Figures are what a page shows of a Limiter: those of ratelimit.Stats.
type Figures struct {
	Active, AtLimit, Queued int
	Oldest                  time.Duration
	Requests                map[string]uint64 // by result
}

// FiguresOf returns the figures of l at this moment.
func FiguresOf(l Limiter) Figures { return l.limit().figures() }

func (l *Limit) limit() *Limit { return l }

// Refuse is for a request that a middleware rejects before it has an id to
// Acquire. It counts the rejection, reports err to the Observers and returns
// err. In a dry run it returns nil: the request is admitted. ctx is that of the
// request.
func Refuse(ctx context.Context, l Limiter, err error) error { return l.limit().refuse(ctx, err) }

// Carried reports whether ctx carries a lock of the limit of l for id that is
// still held. Such a request has a place already, for example from a middleware
// around. With OneAtATime there is no second one, however long it waits.
//
// Locks are compared by their keys, so a lock of another Limiter or Locker
// counts. A lock of a dry run is not carried. Carried needs no query.
func Carried(ctx context.Context, l Limiter, id string) bool { return l.limit().carried(ctx, id) }

// AcquireAll is ratelimit.AcquireAll for levels, of which l is one. It calls
// waits once, when the request has a place in line. The time that waits takes
// counts for the wait, and its context ends with that.
func AcquireAll[Level, Locks any](ctx context.Context, l Limiter, levels []Level, waits func(context.Context)) (Locks, error) {
	return l.limit().acquireAll.(acquireAll[Level, Locks])(ctx, levels, waits)
}
