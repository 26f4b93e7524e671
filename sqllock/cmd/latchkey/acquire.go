package main

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/latchkey-go/latchkey/sqllock"
)

// tokenVariable is the environment variable that has the fencing token in the
// command. It is not set for a reader's lock, nor if the database rejects the
// statement that draws a token.
const tokenVariable = "LATCHKEY_TOKEN"

// session opens the Session that holds the lock. It has a connection, and one
// more while it connects.
func (r *runConfig) session(ctx context.Context, db *database) (*sqllock.Session, error) {
	db.SetMaxOpenConns(3)
	db.SetMaxIdleConns(0) // a connection that is open holds the lock, and no other is
	log := slog.DiscardHandler
	if r.verbose {
		log = slog.NewTextHandler(os.Stderr, nil)
	}
	opts := []sqllock.Option{sqllock.WithLogger(slog.New(log))}
	if r.lease > 0 {
		opts = append(opts, sqllock.WithLease(r.lease))
	}
	if r.table {
		opts = append(opts, sqllock.WithLeaseTable())
	}
	session, err := sqllock.Open(ctx, db.DB, opts...)
	switch {
	case ctx.Err() != nil:
		return nil, errors.Join(context.Cause(ctx), err)
	case err != nil && codeOf(err) == exitFailure: // an option that does not suit
		return nil, &exitError{exitConfig, err}
	}
	return session, err
}

// acquire gets the lock, or fails with the exit code for a lock that is held.
func (r *runConfig) acquire(ctx context.Context, s *sqllock.Session) (*sqllock.Lock, error) {
	begin := time.Now()
	lock, err := r.request(ctx, s)
	switch {
	case ctx.Err() != nil: // a signal
		if lock != nil {
			_ = lock.Unlock()
		}
		return nil, context.Cause(ctx)
	case errors.Is(err, sqllock.ErrHeld):
		r.say("failed to get the lock")
		return nil, silent(r.conflict)
	case errors.Is(err, context.DeadlineExceeded) && codeOf(err) == exitFailure: // no reason but another holder
		r.say("timeout while waiting to get the lock")
		return nil, silent(r.conflict)
	case err != nil:
		return nil, err
	}
	r.say("getting the lock took %.6f seconds", time.Since(begin).Seconds())
	return lock, nil
}

// request makes the call that the command line asks for.
func (r *runConfig) request(ctx context.Context, s *sqllock.Session) (*sqllock.Lock, error) {
	if r.wait > 0 && r.wait < forever {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, r.wait)
		defer cancel()
	}
	key, wait := r.keys[0], r.wait > 0
	switch {
	case r.shared && wait:
		return s.RLock(ctx, key)
	case r.shared:
		return s.TryRLock(ctx, key)
	case wait:
		return s.LockAny(ctx, r.keys...)
	}
	return s.TryAny(ctx, r.keys...)
}

// environment returns the environment of the command. A token that was there
// belongs to another lock.
func (r *runConfig) environment(ctx context.Context, lock *sqllock.Lock) []string {
	env := slices.DeleteFunc(os.Environ(), func(variable string) bool { return strings.HasPrefix(variable, tokenVariable+"=") })
	if r.shared {
		return env
	}
	token, err := lock.Token(ctx)
	if err != nil {
		r.say("there is no fencing token: %v", err)
		return env
	}
	return append(env, tokenVariable+"="+token)
}
