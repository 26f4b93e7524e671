package election

import (
	"cmp"
	"context"
	"errors"
	"reflect"
	"time"

	"github.com/latchkey-go/latchkey/sqllock"
)

// A term is the time between one grant of the key and its release. It never
// changes.
type term struct {
	lock  *sqllock.Lock
	since time.Time
	token string
}

// serve leads for a term with lock, and releases it. Its results are those of
// stand.
func (c *Campaign) serve(ctx context.Context, lock *sqllock.Lock, lead func(context.Context) error) (most time.Duration, err error) {
	token, err := lock.Token(ctx) // "" if the lock has none
	now := term{lock: lock, token: token, since: time.Now()}
	switch {
	case ctx.Err() != nil || lock.Err() != nil: // over before it has begun
		c.note(lock.Unlock())
		return 0, ctx.Err()
	case errors.Is(err, sqllock.ErrUnavailable): // without its token the term would look older than those before
		_ = lock.Unlock()
		c.note(err)
		return 0, nil
	}
	cause, err := c.runTerm(ctx, now, lead)
	c.note(together(cause, err))
	if ended := ctx.Err(); ended != nil {
		return 0, together(ended, err)
	}
	if cause == nil && err != nil && time.Since(now.since) < c.maxPause {
		return c.maxPause, nil
	}
	return 0, nil
}

// runTerm runs lead for a term. cause is why lead's context ended, or nil if
// lead returned before. err is lead's error, or nil if it only repeats what the
// context says.
func (c *Campaign) runTerm(ctx context.Context, now term, lead func(context.Context) error) (cause, err error) {
	bound, cancel := now.lock.Bind(ctx)
	c.set(now)
	defer func() {
		ended := bound.Err()
		if ended != nil {
			cause = context.Cause(bound)
		}
		c.set(term{})
		cancel() // goroutines that lead has left behind stop before the key is free
		if errors.Is(now.lock.Unlock(), sqllock.ErrLost) && cause == nil {
			cause = sqllock.ErrLost
		}
		if same(err, cause) || same(err, ended) {
			err = nil
		}
	}()
	return nil, lead(bound)
}

// same reports whether a and b are one error, and not only one of several that a
// has. Errors of a type that cannot be compared never are.
func same(a, b error) bool { return reflect.ValueOf(a).Comparable() && a == b }

// together returns both errors as one. Either may be nil.
func together(a, b error) error {
	if a == nil || b == nil {
		return cmp.Or(a, b)
	}
	return errors.Join(a, b)
}

// set sets the term under way. The zero term is none.
func (c *Campaign) set(now term) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.now = now; now.lock != nil {
		c.terms++
	}
}

func (c *Campaign) note(err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.err = err
}
